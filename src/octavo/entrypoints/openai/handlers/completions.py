"""`POST /v1/completions`: one or several prompts, n answers each, prompt-major order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from octavo.engine.input import check_queued_tokens, check_sequences
from octavo.engine.prompt_embeds import EmbedsPrompt, check_enabled, check_size, read_embeds
from octavo.entrypoints.openai.handlers import generation
from octavo.entrypoints.openai.handlers.logprobs import CompletionLogprobsBuilder, prompt_logprobs_body
from octavo.entrypoints.openai.protocol.completion import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
)
from octavo.entrypoints.openai.protocol.names import named
from octavo.entrypoints.openai.sse import sse_response
from octavo.entrypoints.openai.state import ServerState, new_request_id, server_state
from octavo.types.outputs import CompletionOutput, PositionLogprobs, PromptPositions, RequestOutput
from octavo.types.sampling_params import SamplingParams


@dataclass
class Answer:
    """What every piece of one answer needs to know."""

    state: ServerState
    body: CompletionRequest
    request_id: str
    model: str
    created: int
    builders: dict[int, CompletionLogprobsBuilder] = field(default_factory=dict)
    prompt_logprobs: dict[int, PromptPositions] = field(default_factory=dict)
    """By prompt. A stream brings them once, with whichever choice speaks first; every echoed choice needs them."""

    def head(self) -> dict[str, Any]:
        """Fields that open each chunk."""
        return {
            "id": self.request_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
        }

    def logprobs_builder(self, index: int, prompt_token_ids: list[int]) -> CompletionLogprobsBuilder:
        """The builder of choice `index`: it counts text offsets over the whole choice."""
        if index not in self.builders:
            self.builders[index] = CompletionLogprobsBuilder(
                self.state.renderer.tokenizer,
                [] if self.body.echo else prompt_token_ids,
                skip_special_tokens=self.body.skip_special_tokens,
            )
        return self.builders[index]


async def create_completion(body: CompletionRequest, request: Request) -> Response:
    """Continue each prompt."""
    state = server_state(request, body.model)
    state.check_open()
    model = state.check_model(body.model)
    state.check_generates()
    max_queued = state.engine.config.scheduler.max_num_queued_reqs
    check_sequences(
        (len(body.prompts) + len(body.embeds)) * body.n, max_queued, "n" if body.n > 1 else "prompt"
    )
    prompts: list[list[int] | EmbedsPrompt] = [
        *await _embeds(state, body),
        *await state.renderer.completion_prompts(body),
    ]
    if len(prompts) > 1:
        num_tokens = body.n * sum(map(_num_tokens, prompts))
        check_queued_tokens(num_tokens, state.engine.config.scheduler.max_num_queued_tokens, "prompt")
    params = _params(state, body)
    request_id = new_request_id("cmpl", request, body.request_id)
    answer = Answer(state, body, request_id, model, state.now())
    streams = [
        generation.generate(state, body, ids, params, f"{request_id}-{index}")
        for index, ids in enumerate(prompts)
    ]
    if body.stream:
        with named(body.renamed_fields):
            opened = await _open_all(request, streams)
        return sse_response(_chunks(answer, opened))
    work = _gather([generation.last_output(stream) for stream in streams])
    with named(body.renamed_fields):
        finals = await generation.unless_disconnected(request, work)
    return JSONResponse(_completion(answer, finals).model_dump(mode="json"))


async def _embeds(state: ServerState, body: CompletionRequest) -> list[EmbedsPrompt]:
    """The prompts that are rows of the embedding.

    Raises:
        InvalidRequestError: they are not enabled, or not what they should be.
    """
    if not body.embeds:
        return []
    check_enabled(state.engine.config.model)
    prompts: list[EmbedsPrompt] = [
        {"prompt_embeds": await asyncio.to_thread(read_embeds, text)} for text in body.embeds
    ]
    check_size(sum(prompt["prompt_embeds"].nbytes for prompt in prompts), body.n)
    return prompts


def _num_tokens(prompt: list[int] | EmbedsPrompt) -> int:
    return len(prompt if isinstance(prompt, list) else prompt["prompt_embeds"])


def _params(state: ServerState, body: CompletionRequest) -> SamplingParams:
    # An echo alone still runs the prompt; the one token that the engine adds is dropped below.
    max_tokens = 1 if body.max_tokens == 0 else body.max_tokens
    params = body.sampling_params(
        defaults=state.sampling_defaults, max_tokens=max_tokens, logprobs=body.logprobs
    )
    if body.echo and body.logprobs is not None and params.prompt_logprobs is None:
        return msgspec.structs.replace(params, prompt_logprobs=body.logprobs)
    return params


async def _open_all(
    request: Request, streams: list[AsyncGenerator[RequestOutput]]
) -> list[AsyncGenerator[RequestOutput]]:
    """Open the first stream before the answer starts: what is wrong with one prompt's parameters is wrong with all."""
    return [await generation.opened(request, streams[0]), *streams[1:]]


async def _gather(work: list[Coroutine[Any, Any, RequestOutput]]) -> list[RequestOutput]:
    """All results, or the first error once every other run is cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _completion(answer: Answer, finals: list[RequestOutput]) -> Completion:
    count = generation.UsageCount()
    choices = []
    for position, final in enumerate(finals):
        count.add_prompt(final)
        count.cached_tokens += final.num_cached_tokens
        if answer.body.max_tokens != 0:
            count.add_output(final)
        choices += [_choice(answer, position, final, output) for output in final.outputs]
    return Completion(
        id=answer.request_id, created=answer.created, model=answer.model, choices=choices, usage=count.usage()
    )


def _choice(
    answer: Answer, position: int, final: RequestOutput, output: CompletionOutput
) -> CompletionChoice:
    body = answer.body
    index = position * body.n + output.index
    output = _without_dropped_token(body, output)
    echo = answer.state.renderer.echo_text(body, final.prompt_token_ids) if body.echo else ""
    return CompletionChoice(
        index=index,
        text=echo + output.text,
        logprobs=_logprobs(answer, index, final, output, echo=body.echo),
        finish_reason=output.finish_reason,
        stop_reason=output.stop_reason,
        prompt_logprobs=prompt_logprobs_body(final.prompt_logprobs)
        if body.prompt_logprobs is not None
        else None,
        token_ids=output.token_ids if body.return_token_ids else None,
        prompt_token_ids=final.prompt_token_ids if body.return_token_ids else None,
    )


def _logprobs(
    answer: Answer, index: int, output: RequestOutput, choice: CompletionOutput, *, echo: bool
) -> CompletionLogprobs | None:
    """Columns for this piece of a choice, with the prompt's before them if it is echoed here."""
    style = generation.logprob_style(answer.body, answer.body.logprobs)
    if style is None:
        return None
    ids: list[int] = []
    positions: list[PositionLogprobs | None] = []
    if echo:
        ids += output.prompt_token_ids
        known = answer.prompt_logprobs.get(index // answer.body.n, output.prompt_logprobs)
        positions += known or [None] * len(output.prompt_token_ids)
    ids += choice.token_ids
    positions += choice.logprobs or []
    builder = answer.logprobs_builder(index, output.prompt_token_ids)
    return builder.build(ids, positions, style, last=choice.finish_reason is not None)


def _without_dropped_token(body: CompletionRequest, choice: CompletionOutput) -> CompletionOutput:
    """`choice`, or for an echo alone (`max_tokens` 0) an answer of no tokens."""
    if body.max_tokens != 0:
        return choice
    return CompletionOutput(
        index=choice.index,
        text="",
        token_ids=[],
        logprobs=[],
        finish_reason=choice.finish_reason and "length",
    )


async def _chunks(
    answer: Answer, streams: list[AsyncGenerator[RequestOutput]]
) -> AsyncIterator[dict[str, Any]]:
    count = generation.UsageCount()
    begun: set[int] = set()
    silent = set(range(len(streams) * answer.body.n))
    async for position, output in generation.merged(streams):
        if position not in begun:
            begun.add(position)
            answer.prompt_logprobs[position] = output.prompt_logprobs or []
            count.add_prompt(output)
            count.cached_tokens += output.num_cached_tokens
        if answer.body.max_tokens != 0:
            count.add_output(output)
        for choice in output.outputs:
            chunk = _chunk(answer, position, output, choice, silent)
            if chunk is not None:
                yield _with_usage(answer, count, chunk)
    if answer.body.wants_usage:
        yield answer.head() | {"choices": [], "usage": count.usage().model_dump()}


def _chunk(
    answer: Answer, position: int, output: RequestOutput, choice: CompletionOutput, silent: set[int]
) -> dict[str, Any] | None:
    """What a choice has to say, if anything; it is one of `silent` until its first piece."""
    body = answer.body
    choice = _without_dropped_token(body, choice)
    index = position * body.n + choice.index
    first = index in silent
    silent.discard(index)
    echoed = first and body.echo
    echo = answer.state.renderer.echo_text(body, output.prompt_token_ids) if echoed else ""
    text = echo + choice.text
    logprobs = _logprobs(answer, index, output, choice, echo=echoed)
    if not text and choice.finish_reason is None and logprobs is None and not body.return_token_ids:
        return None
    entry: dict[str, Any] = {
        "index": index,
        "text": text,
        "logprobs": logprobs.model_dump() if logprobs is not None else None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    if body.return_token_ids:
        entry["token_ids"] = choice.token_ids
        entry["prompt_token_ids"] = output.prompt_token_ids if first else None
    return answer.head() | {"choices": [entry]}


def _with_usage(answer: Answer, count: generation.UsageCount, chunk: dict[str, Any]) -> dict[str, Any]:
    if answer.body.wants_continuous_usage:
        return chunk | {"usage": count.usage().model_dump()}
    return chunk | {"usage": None} if answer.body.wants_usage else chunk
