"""`use_beam_search`: an answer that is searched for; its n choices come in one piece, best first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from octavo.engine.async_llm import AsyncLLM
from octavo.engine.beam_search import BeamSearch, open_beam_search
from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.lib.errors import NotSupportedError, OctavoError
from octavo.tokenizers import Tokenizer, TokenStream
from octavo.types.beam_outputs import BeamSearchSequence
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import SamplingParams


async def search(
    engine: AsyncLLM,
    body: SamplingFields,
    prompt_token_ids: list[int],
    params: SamplingParams,
    request_id: str,
) -> AsyncGenerator[RequestOutput]:
    """One output with all choices. Closing the generator aborts what runs.

    Raises:
        OctavoError: the request cannot be used, or the engine failed.
    """
    if params.structured_outputs is not None:
        raise NotSupportedError(
            "use_beam_search does not go with a structured answer", param="use_beam_search"
        )
    room = engine.config.model.max_model_len - len(prompt_token_ids)
    wanted = body.beam_search_params(params, max(1, room))
    prompt = {"prompt_token_ids": prompt_token_ids}
    beams = open_beam_search(engine.config, engine.tokenizer, prompt, wanted, width_name="n")
    cached, serial = None, 0
    while not beams.finished:
        names = [f"{request_id}-{serial}.{index}" for index in range(len(beams.live))]
        steps = await _step(engine, body, beams, names)
        cached = steps[0].num_cached_tokens if cached is None else cached
        serial += 1
        beams.advance([step.outputs[0] for step in steps])
    choice = partial(_choice, engine.tokenizer, beams, params)
    yield RequestOutput(
        request_id=request_id,
        prompt=None,
        prompt_token_ids=prompt_token_ids,
        outputs=[choice(index, sequence) for index, sequence in enumerate(beams.best())],
        finished=True,
        num_cached_tokens=cached or 0,
    )


async def _step(
    engine: AsyncLLM, body: SamplingFields, beams: BeamSearch, names: list[str]
) -> list[RequestOutput]:
    """One token after each live beam; if one fails, all are aborted."""
    runs = [
        asyncio.ensure_future(_last(engine, body, beam, beams.step_params, name))
        for beam, name in zip(beams.live, names, strict=True)
    ]
    try:
        return await asyncio.gather(*runs)
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


async def _last(
    engine: AsyncLLM, body: SamplingFields, beam: BeamSearchSequence, params: SamplingParams, name: str
) -> RequestOutput:
    outputs = engine.generate(
        {"prompt_token_ids": beam.tokens}, params, name, priority=body.priority, cache_salt=body.cache_salt
    )
    found = [output async for output in outputs]
    if not found or found[-1].error is not None:
        raise OctavoError((found and found[-1].error) or "The engine gave no output.")
    return found[-1]


def _choice(
    tokenizer: Tokenizer | None,
    beams: BeamSearch,
    params: SamplingParams,
    index: int,
    found: BeamSearchSequence,
) -> CompletionOutput:
    ids = found.tokens[len(beams.prompt_token_ids) :]
    text = ""
    if tokenizer is not None:
        stream = TokenStream(tokenizer, beams.prompt_token_ids, params.skip_special_tokens)
        text = stream.push_all(ids) + stream.finish()
    return CompletionOutput(
        index=index,
        text=text,
        token_ids=ids,
        cumulative_logprob=found.cum_logprob,
        logprobs=found.logprobs,
        finish_reason=found.finish_reason,
        stop_reason=found.stop_reason,
    )
