"""`/v1/responses`: make, fetch, follow, cancel and delete responses."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from octavo.entrypoints.openai.errors import shown
from octavo.entrypoints.openai.handlers import generation, turns
from octavo.entrypoints.openai.handlers.turns import Piece, Turn
from octavo.entrypoints.openai.protocol.names import named
from octavo.entrypoints.openai.protocol.responses import ItemList, ResponseDeleted, ResponsesRequest
from octavo.entrypoints.openai.responses import chat_form
from octavo.entrypoints.openai.responses.builder import FINAL, ResponseBuilder, StreamEvent
from octavo.entrypoints.openai.responses.fitting import fitting_turn
from octavo.entrypoints.openai.responses.items import messages_of
from octavo.entrypoints.openai.sse import typed_sse_response
from octavo.entrypoints.openai.state import ServerState, new_request_id, server_state
from octavo.lib.errors import InvalidRequestError

MAX_PAGE = 100


async def create_response(body: ResponsesRequest, request: Request) -> Response:
    """Answer now, as a stream, or in the background."""
    state = server_state(request, body.model)
    state.check_open()
    model = state.check_model(body.model)
    turn = await _turn(state, body, new_request_id("resp", request, body.request_id))
    builder = ResponseBuilder(chat_form.empty_response(body, model, state.now(), turn), turn)
    items = chat_form.stored_items(body.input_items)
    if body.background:
        return _in_background(state, body, builder, turn, items)
    with named(chat_form.NAMES):
        pieces = turn.pieces(request)
        if body.stream:
            return typed_sse_response(_events(state, builder, await turns.started(pieces), items))
        await generation.unless_disconnected(request, turns.fill(builder, pieces))
    await _save(state, builder, items)
    return JSONResponse(builder.response)


async def retrieve_response(
    response_id: str,
    request: Request,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1)] = -1,
    include: Annotated[list[str] | None, Query(alias="include[]")] = None,
    include_obfuscation: bool = False,
) -> Response:
    """A response as it is now; with `stream`, the events of one that is made in the background."""
    archive = server_state(request).responses
    if not stream:
        return JSONResponse((await archive.find(response_id)).response)
    job = archive.job(response_id)
    if job is not None and job.keeps_events:
        return typed_sse_response(job.follow(starting_after))
    events = (await archive.find(response_id)).events
    if events is None:
        message = "only a response made with background=true and stream=true can be streamed again"
        raise InvalidRequestError(message, param="stream")
    return typed_sse_response(_replay(events, starting_after))


async def list_input_items(
    response_id: str,
    request: Request,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    include: Annotated[list[str] | None, Query(alias="include[]")] = None,
) -> ItemList:
    """What the response was asked, a page at a time; not what earlier responses of its chain hold."""
    record = await server_state(request).responses.find(response_id)
    items = record.input_items if order == "asc" else record.input_items[::-1]
    if after is not None:
        places = [at for at, item in enumerate(items) if item["id"] == after]
        if not places:
            raise InvalidRequestError(f"after: the response has no input item {after[:64]!r}", param="after")
        items = items[places[0] + 1 :]
    page = items[:limit]
    ids = [item["id"] for item in page]
    return ItemList(
        data=page,
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=len(items) > limit,
    )


async def delete_response(response_id: str, request: Request) -> ResponseDeleted:
    """Forget a response; one that is being made is cancelled first."""
    await server_state(request).responses.delete(response_id)
    return ResponseDeleted(id=response_id)


async def cancel_response(response_id: str, request: Request) -> JSONResponse:
    """End a background response now; one that is final stays as it is."""
    archive = server_state(request).responses
    job = archive.job(response_id)
    if job is not None:
        job.stop()
        await job.wait()
        return JSONResponse(job.response)
    response = (await archive.find(response_id)).response
    if not response["background"]:
        message = "Only a response made with background=true can be cancelled."
        raise InvalidRequestError(message, param="response_id")
    return JSONResponse(response)


async def _turn(state: ServerState, body: ResponsesRequest, request_id: str) -> Turn:
    """The request with what came before it, checked."""
    previous = body.previous_response_id
    history = await state.responses.history(previous) if previous else []
    messages = messages_of(body.input_items, body.instructions, history)
    with named(chat_form.NAMES):
        chat = chat_form.chat_request(body, messages)
        if body.truncation == "auto":
            return await fitting_turn(state, chat, request_id)
        return await turns.open_turn(state, chat, request_id)


def _in_background(
    state: ServerState,
    body: ResponsesRequest,
    builder: ResponseBuilder,
    turn: Turn,
    items: list[dict[str, Any]],
) -> Response:
    job = state.responses.new_job(builder, items, keep_events=body.stream)
    answer = JSONResponse(builder.response)
    job.start(turn.pieces())
    return typed_sse_response(job.follow()) if body.stream else answer


async def _events(
    state: ServerState, builder: ResponseBuilder, pieces: AsyncGenerator[Piece], items: list[dict[str, Any]]
) -> AsyncIterator[StreamEvent]:
    for event in builder.created() + builder.in_progress():
        yield event
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                events = builder.add(piece)
                if builder.response["status"] in FINAL:
                    # Whoever has read the last event may ask for the response.
                    await _save(state, builder, items)
                for event in events:
                    yield event
    except Exception as error:
        for event in builder.failed(shown(error)):
            yield event
        await _save(state, builder, items)


async def _replay(events: list[StreamEvent], starting_after: int) -> AsyncIterator[StreamEvent]:
    for event in events[starting_after + 1 :]:
        yield event


async def _save(state: ServerState, builder: ResponseBuilder, items: list[dict[str, Any]]) -> None:
    if builder.response["store"]:
        await state.responses.save(builder.response, items)
