"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from octavo.entrypoints.anthropic.builder import MessageBuilder, StreamEvent
from octavo.entrypoints.anthropic.chat_form import NAMES, chat_request
from octavo.entrypoints.anthropic.errors import error_event
from octavo.entrypoints.anthropic.protocol import CountTokensRequest, MessagesRequest, TokenCount
from octavo.entrypoints.openai.handlers import generation, turns
from octavo.entrypoints.openai.handlers.turns import Piece
from octavo.entrypoints.openai.protocol.names import named
from octavo.entrypoints.openai.sse import typed_sse_response
from octavo.entrypoints.openai.state import new_request_id, server_state


async def create_message(body: MessagesRequest, request: Request) -> Response:
    """Let the engine continue the conversation."""
    state = server_state(request, body.model)
    state.check_open()
    model = state.check_model(body.model)
    with named(NAMES):
        turn = await turns.open_turn(state, chat_request(body), new_request_id("msg", request, None))
        builder = MessageBuilder(model, turn)
        pieces = turn.pieces(request)
        if body.stream:
            return typed_sse_response(_events(builder, await turns.started(pieces)))
        await generation.unless_disconnected(request, turns.fill(builder, pieces))
    return JSONResponse(builder.message)


async def count_tokens(body: CountTokensRequest, request: Request) -> TokenCount:
    """How many tokens the prompt of such a conversation has."""
    state = server_state(request, body.model)
    state.check_model(body.model)
    with named(NAMES):
        prompt = await state.renderer.chat_prompt(chat_request(body))
    return TokenCount(input_tokens=len(prompt.token_ids))


async def _events(builder: MessageBuilder, pieces: AsyncGenerator[Piece]) -> AsyncIterator[StreamEvent]:
    started = False
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                for event in [] if started else builder.started():
                    yield event
                started = True
                for event in builder.add(piece):
                    yield event
    except Exception as error:
        yield error_event(error)
