"""One answer to a conversation, for the faces that are not chat completions but mean the same.

They write their request as a chat body and build theirs from events, so that tools, reasoning and structured answers
reach them through the same parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request
from pydantic import ValidationError

from octavo.entrypoints.openai.handlers import generation
from octavo.entrypoints.openai.handlers.logprobs import chat_logprobs
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.renderer import ChatPrompt
from octavo.entrypoints.openai.state import ServerState
from octavo.entrypoints.parsers.events import Event, parsed
from octavo.lib.errors import InvalidRequestError
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import SamplingParams


@dataclass(frozen=True)
class Piece:
    """What one output of the engine adds to the answer."""

    events: list[Event]
    logprobs: list[dict[str, Any]]
    """Of the tokens that are not reasoning, in chat's shape; empty unless asked for."""
    finish_reason: str | None
    stop_reason: int | str | None


class Turn:
    """A request that passed the door, and counts of its answer so far."""

    def __init__(
        self,
        state: ServerState,
        chat: ChatCompletionRequest,
        prompt: ChatPrompt,
        params: SamplingParams,
        request_id: str,
    ) -> None:
        self.params = params
        self.num_prompt_tokens = len(prompt.token_ids)
        self.num_cached_tokens = 0
        self.num_output_tokens = 0
        self._state = state
        self._chat = chat
        self._prompt = prompt
        self._parser = prompt.new_parser()
        self._request_id = request_id

    @property
    def num_reasoning_tokens(self) -> int:
        return self._parser.reasoning_tokens

    async def pieces(self, request: Request | None = None) -> AsyncGenerator[Piece]:
        """Run it. Closing the generator aborts the request in the engine.

        Args:
            request: Whose client is waited for until the first piece; None: nobody's.

        Raises:
            OctavoError: it could not be finished.
        """
        outputs = generation.generate(
            self._state, self._chat, self._prompt.token_ids, self.params, self._request_id
        )
        if request is not None:
            outputs = await generation.opened(request, outputs)
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                yield self._piece(generation.checked(output))

    def _piece(self, output: RequestOutput) -> Piece:
        (choice,) = output.outputs
        self.num_cached_tokens = max(self.num_cached_tokens, output.num_cached_tokens)
        thought = self.num_reasoning_tokens
        ended = choice.finish_reason is not None
        events = parsed(self._parser, choice.text, choice.token_ids, ended=ended)
        self.num_output_tokens += len(choice.token_ids)
        logprobs = self._logprobs(choice)[self.num_reasoning_tokens - thought :]
        return Piece(events, logprobs, choice.finish_reason, choice.stop_reason)

    def _logprobs(self, choice: CompletionOutput) -> list[dict[str, Any]]:
        style = generation.logprob_style(self._chat, self._chat.num_logprobs)
        if style is None:
            return []
        found = chat_logprobs(self._state.renderer.tokenizer, choice.token_ids, choice.logprobs, style)
        return [] if found is None or found.content is None else [e.model_dump() for e in found.content]


async def open_turn(state: ServerState, chat: ChatCompletionRequest, request_id: str) -> Turn:
    """Render the conversation and check its sampling parameters.

    Raises:
        OctavoError: the request cannot be answered as it is.
    """
    state.check_generates()
    prompt = await state.renderer.chat_prompt(chat)
    return Turn(state, chat, prompt, generation.chat_params(state, chat, prompt), request_id)


async def started(pieces: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    """Wait for the first piece, so that early errors come before the head of the answer goes out."""
    first = await anext(pieces, None)
    return _resumed(first, pieces)


async def _resumed(first: Piece | None, pieces: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    async with contextlib.aclosing(pieces):
        if first is not None:
            yield first
        async for piece in pieces:
            yield piece


class Builder(Protocol):
    """Makes a face's own object of the pieces of an answer."""

    def add(self, piece: Piece) -> object:
        """Take in one piece."""
        ...


async def fill(builder: Builder, pieces: AsyncGenerator[Piece]) -> None:
    """Give a builder the whole answer."""
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            builder.add(piece)


def chat_body(fields: Mapping[str, Any]) -> ChatCompletionRequest:
    """A chat request made of checked parts.

    Raises:
        InvalidRequestError: a part is not what chat completions take.
    """
    try:
        return ChatCompletionRequest.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidRequestError(
            f"{place or 'body'}: {first['msg']}", param=place.split(".")[0] or None
        ) from error
