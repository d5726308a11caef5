"""From a prompt to the engine and back: shared by chat and completions, stream and not."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.requests import ClientDisconnect

from octavo.engine.input import check_extra_args
from octavo.engine.prompt_embeds import EmbedsPrompt
from octavo.entrypoints.openai.forced_calls import constrained
from octavo.entrypoints.openai.handlers import beams
from octavo.entrypoints.openai.handlers.logprobs import LogprobStyle
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.entrypoints.openai.protocol.names import ENGINE_NAMES, named
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.entrypoints.openai.renderer import ChatPrompt
from octavo.entrypoints.openai.state import ServerState
from octavo.lib.errors import OctavoError
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import SamplingParams

T = TypeVar("T")
# Of one stream among several: an output, its end (None) or what broke it.
Item = tuple[int, RequestOutput | Exception | None]


def chat_params(state: ServerState, body: ChatCompletionRequest, prompt: ChatPrompt) -> SamplingParams:
    """What the engine is asked for an answer to a conversation.

    Raises:
        InvalidRequestError: a field is out of its range.
    """
    params = body.sampling_params(
        defaults=state.sampling_defaults, max_tokens=body.token_limit, logprobs=body.num_logprobs
    )
    spelled = msgspec.structs.replace(params, skip_special_tokens=not prompt.shows_special_tokens)
    return constrained(spelled, body)


def generate(
    state: ServerState,
    body: SamplingFields,
    prompt: list[int] | EmbedsPrompt,
    params: SamplingParams,
    request_id: str,
) -> AsyncGenerator[RequestOutput]:
    """Hand one prompt to the engine. Closing the generator aborts the request there."""
    with named(ENGINE_NAMES):
        check_extra_args(params.extra_args, state.engine.config.model)
    if body.use_beam_search and isinstance(prompt, list):  # the door refuses prompts without token ids
        return beams.search(state.engine, body, prompt, params, f"{request_id}-{uuid.uuid4().hex[:8]}")
    # The suffix keeps two requests apart that a client gave the same id.
    return state.engine.generate(
        {"prompt_token_ids": prompt} if isinstance(prompt, list) else prompt,
        params,
        f"{request_id}-{uuid.uuid4().hex[:8]}",
        priority=body.priority,
        cache_salt=body.cache_salt,
    )


def logprob_style(body: SamplingFields, top: int | None) -> LogprobStyle | None:
    """How an answer's log probabilities are shown; None where it has none.

    Args:
        top: Most likely tokens that the request wants to see; None where it said nothing.
    """
    asked = frozenset(body.logprob_token_ids or ())
    if top is None and not asked:
        return None
    shown = sys.maxsize if top == -1 else top or 0
    return LogprobStyle(shown, asked, body.return_tokens_as_token_ids)


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled as soon as the client hangs up.

    Raises:
        ClientDisconnect: the client has gone.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect()
        return task.result()
    finally:
        for waiting in (task, watcher):
            if not waiting.done():
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await waiting


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def last_output(outputs: AsyncGenerator[RequestOutput]) -> RequestOutput:
    """Run a final-only request to its end.

    Raises:
        OctavoError: the engine could not finish it.
    """
    async with contextlib.aclosing(outputs):
        final = None
        async for output in outputs:
            final = output
    if final is None:
        raise OctavoError("The engine gave no output.")
    return checked(final)


def checked(output: RequestOutput) -> RequestOutput:
    """`output`, unless it carries an error of this one request."""
    if output.error is not None:
        raise OctavoError(output.error)
    return output


async def opened(request: Request, outputs: AsyncGenerator[RequestOutput]) -> AsyncGenerator[RequestOutput]:
    """Wait for the first output before the head of the answer goes out, so that early errors keep their status."""
    try:
        first = await unless_disconnected(request, _next(outputs))
    except BaseException:
        await outputs.aclose()
        raise
    return _resumed(first, outputs)


async def _next(outputs: AsyncGenerator[RequestOutput]) -> RequestOutput | None:
    return await anext(outputs, None)


async def _resumed(
    first: RequestOutput | None, outputs: AsyncGenerator[RequestOutput]
) -> AsyncGenerator[RequestOutput]:
    async with contextlib.aclosing(outputs):
        if first is not None:
            yield checked(first)
        async for output in outputs:
            yield checked(output)


async def merged(streams: list[AsyncGenerator[RequestOutput]]) -> AsyncIterator[tuple[int, RequestOutput]]:
    """The outputs of several streams as they come, each with the index of its stream."""
    if len(streams) == 1:
        async with contextlib.aclosing(streams[0]) as only:
            async for output in only:
                yield 0, output
        return
    queue: asyncio.Queue[Item] = asyncio.Queue(maxsize=64)
    tasks = [asyncio.ensure_future(_pump(index, stream, queue)) for index, stream in enumerate(streams)]
    try:
        running = len(tasks)
        while running:
            index, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(index: int, stream: AsyncGenerator[RequestOutput], queue: asyncio.Queue[Item]) -> None:
    try:
        async with contextlib.aclosing(stream):
            async for output in stream:
                await queue.put((index, output))
        await queue.put((index, None))
    except Exception as error:
        await queue.put((index, error))


@dataclass
class UsageCount:
    """Token counts of one HTTP request over its prompts and choices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def add_prompt(self, output: RequestOutput) -> None:
        self.prompt_tokens += len(output.prompt_token_ids)

    def add_output(self, output: RequestOutput) -> None:
        self.completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)

    def usage(self) -> Usage:
        return Usage.of(self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.reasoning_tokens)
