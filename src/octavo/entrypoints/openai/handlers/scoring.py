"""`POST /score` and `/rerank`: how well texts go together, by a cross-encoder or by two embeddings' cosine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from octavo.engine.pairs import cosines, paired
from octavo.engine.pooling_input import pooling_of, resolve_pooling, truncation
from octavo.entrypoints.openai.handlers.vectors import json_response, naming, usage_of, vectors
from octavo.entrypoints.openai.protocol.pooling import PoolingFields
from octavo.entrypoints.openai.protocol.scoring import RerankRequest, ScoreRequest
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.entrypoints.openai.state import ServerState, new_request_id, server_state


@dataclass(frozen=True)
class Scores:
    """One number for each pair, and what they cost."""

    values: list[float]
    usage: Usage


async def create_score(body: ScoreRequest, request: Request) -> Response:
    """A score for each pair."""
    state = server_state(request, body.model)
    state.check_open()
    model = state.check_model(body.model)
    pairs = paired(*body.both, body.names)
    scores = await _scores(state, request, body, pairs, body.names[1])
    data = [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores.values)]
    head = {"id": new_request_id("score", request, body.request_id), "object": "list", "created": state.now()}
    return json_response(head | {"model": model, "data": data, "usage": scores.usage.model_dump()})


async def rerank(body: RerankRequest, request: Request) -> Response:
    """Documents by how well they answer the query, the best first; equal ones in the order they came in."""
    state = server_state(request, body.model)
    state.check_open()
    model = state.check_model(body.model)
    texts = body.texts
    if body.max_tokens_per_doc is not None:
        with naming("documents"):
            texts = await state.renderer.shortened(texts, body.max_tokens_per_doc)
    scores = await _scores(state, request, body, [(body.query, text) for text in texts], "documents")
    order = sorted(range(len(texts)), key=lambda index: -scores.values[index])
    is_v2 = request.url.path.endswith("/v2/rerank")
    wants_text = body.return_documents if body.return_documents is not None else not is_v2
    results = []
    for index in order[: body.top_n or None]:
        entry: dict[str, object] = {"index": index, "relevance_score": scores.values[index]}
        results.append(entry | {"document": {"text": body.texts[index]}} if wants_text else entry)
    answer = {
        "id": new_request_id("rerank", request, body.request_id),
        "model": model,
        "results": results,
        "usage": scores.usage.model_dump(),
        "meta": {"api_version": {"version": "2" if is_v2 else "1"}, "billed_units": {"search_units": 1}},
    }
    return json_response(answer)


async def _scores(
    state: ServerState, request: Request, body: PoolingFields, pairs: list[tuple[str, str]], field: str
) -> Scores:
    """Raises: InvalidRequestError if the model neither embeds nor reads pairs."""
    model = state.engine.config.model
    if pooling_of(model, None).task == "embed":
        return await _by_cosine(state, request, body, pairs, field)
    params = resolve_pooling(model, body.pooling_params("score"))
    with naming(field):
        prompts = await state.renderer.pair_ids(pairs, truncation(params, model.max_model_len))
    outputs = await vectors(
        state, request, prompts, params, field=field, priority=body.priority, cache_salt=body.cache_salt
    )
    return Scores([output.outputs.data[0] for output in outputs], usage_of(outputs))


async def _by_cosine(
    state: ServerState, request: Request, body: PoolingFields, pairs: list[tuple[str, str]], field: str
) -> Scores:
    """Each different text is computed, and counted, once."""
    model = state.engine.config.model
    params = resolve_pooling(model, body.pooling_params("embed"))
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    with naming(field):
        prompts = await state.renderer.text_ids(
            texts, add_special_tokens=body.add_special_tokens, limit=truncation(params, model.max_model_len)
        )
    outputs = await vectors(
        state,
        request,
        prompts,
        params,
        field=field,
        numbered=False,
        priority=body.priority,
        cache_salt=body.cache_salt,
    )
    found = {text: output.outputs.data for text, output in zip(texts, outputs, strict=True)}
    # Thousands of long vectors take a second, in which other streams go on.
    return Scores(await asyncio.to_thread(cosines, found, pairs), usage_of(outputs))
