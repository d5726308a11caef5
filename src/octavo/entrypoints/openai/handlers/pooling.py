"""`POST /v1/embeddings`, `/pooling`, `/classify` and `/v2/embed`."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response

from octavo.engine.pooling_input import pooling_of, resolve_pooling, truncation
from octavo.entrypoints.openai.handlers.vectors import (
    bytes_response,
    json_response,
    naming,
    usage_of,
    vectors,
    written,
)
from octavo.entrypoints.openai.protocol.pooling import (
    ClassificationRequest,
    CohereEmbedRequest,
    EmbeddingRequest,
    EncodedFields,
    InputFields,
    PoolingBody,
)
from octavo.entrypoints.openai.state import ServerState, new_request_id, server_state
from octavo.types.pooling_outputs import PoolingRequestOutput
from octavo.types.pooling_params import PoolingParams


async def create_embedding(body: EmbeddingRequest, request: Request) -> Response:
    """An embedding of each input."""
    params = body.pooling_params("embed", dimensions=body.dimensions)
    return await _encoded(body, request, params, ("embd", "embedding", "embedding"))


async def create_pooling(body: PoolingBody, request: Request) -> Response:
    """What the model is for, of each input."""
    params = body.pooling_params(body.task, dimensions=body.dimensions)
    return await _encoded(body, request, params, ("pool", "pooling", "data"))


async def create_classification(body: ClassificationRequest, request: Request) -> Response:
    """The classes of each input."""
    state = server_state(request, body.model)
    params = body.pooling_params("classify")
    head, outputs = await _run(state, request, body, params, "classify")
    labels = pooling_of(state.engine.config.model, None).labels
    data = []
    for index, output in enumerate(outputs):
        probs = output.outputs.data.tolist()
        best = max(range(len(probs)), key=probs.__getitem__)
        data.append({"index": index, "label": labels[best], "probs": probs, "num_classes": len(probs)})
    return json_response(head | {"data": data, "usage": usage_of(outputs).model_dump()})


async def create_cohere_embedding(body: CohereEmbedRequest, request: Request) -> Response:
    """Embeddings in the shapes that Cohere's clients read."""
    state = server_state(request, body.model)
    state.check_open()
    state.check_model(body.model)
    limit = -1 if body.truncate == "END" else None
    params = PoolingParams(
        task="embed", dimensions=body.output_dimension, truncate_prompt_tokens=body.max_tokens or limit
    )
    params = resolve_pooling(state.engine.config.model, params)
    cut = truncation(params, state.engine.config.model.max_model_len)
    with naming("texts"):
        prompts = await state.renderer.text_ids(body.texts, limit=cut)
    outputs = await vectors(
        state, request, prompts, params, field="texts", priority=body.priority, cache_salt=body.cache_salt
    )
    found = {
        kind: [written(output.outputs.data, kind) for output in outputs]
        for kind in body.embedding_types or ["float"]
    }
    tokens = usage_of(outputs).prompt_tokens
    answer = {
        "id": new_request_id("embd", request, body.request_id),
        "embeddings": found,
        "texts": body.texts,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
        "response_type": "embeddings_by_type",
    }
    return json_response(answer)


async def _encoded(
    body: EncodedFields, request: Request, params: PoolingParams, names: tuple[str, str, str]
) -> Response:
    """Vectors in the wanted encoding. `names`: prefix of the id, kind of an entry, and the key of its vector."""
    prefix, kind, key = names
    head, outputs = await _run(server_state(request, body.model), request, body, params, prefix)
    head["usage"] = usage_of(outputs).model_dump()
    encoding = body.encoding_format
    if encoding in ("bytes", "bytes_only"):
        return bytes_response(head, outputs, metadata=encoding == "bytes")
    data = [
        {"index": index, "object": kind, key: written(output.outputs.data, encoding)}
        for index, output in enumerate(outputs)
    ]
    return json_response(head | {"data": data})


async def _run(
    state: ServerState, request: Request, body: InputFields, params: PoolingParams, prefix: str
) -> tuple[dict[str, Any], list[PoolingRequestOutput]]:
    """The fields that open an answer, and the vectors."""
    state.check_open()
    name = state.check_model(body.model)
    model = state.engine.config.model
    params = resolve_pooling(model, params)
    with naming(body.text_field):
        prompts = await state.renderer.pooling_prompts(body, truncation(params, model.max_model_len))
    outputs = await vectors(
        state,
        request,
        prompts,
        params,
        field=body.text_field,
        priority=body.priority,
        cache_salt=body.cache_salt,
    )
    request_id = new_request_id(prefix, request, body.request_id)
    return {"id": request_id, "object": "list", "created": state.now(), "model": name}, outputs
