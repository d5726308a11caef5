"""What operators ask: `/health`, `/ready`, `/ping`, `/version`, `/metrics`, `/load`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from octavo.entrypoints.openai.errors import error_response
from octavo.entrypoints.openai.state import ServerState, server_state
from octavo.lib.errors import OctavoError
from octavo.metrics.together import render_together
from octavo.version import __version__

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request, model: str | None = None) -> Response:
    """200 while the engine lives and makes progress; 503 with the reason when it does not.

    Of several models one suffices, as the server that has it must not be stopped; `model` asks for one of them.
    """
    return await _one_suffices(_asked(request, model), _check_health)


async def ready(request: Request, model: str | None = None) -> Response:
    """200 when new requests are taken: not while models start, while draining or without an engine."""
    states = _asked(request, model)
    starting = [state for state in states if state.engine.is_starting]
    return await _one_suffices(starting[:1] or states, _check_ready)


def _asked(request: Request, model: str | None) -> Sequence[ServerState]:
    return server_state(request).all if model is None else (server_state(request, model),)


async def _one_suffices(
    states: Sequence[ServerState], check: Callable[[ServerState], Awaitable[None]]
) -> Response:
    errors = []
    for state in states:
        try:
            await check(state)
            return Response(status_code=200)
        except OctavoError as error:
            errors.append(error)
    return error_response(errors[0])


async def _check_health(state: ServerState) -> None:
    await state.engine.check_health()


async def _check_ready(state: ServerState) -> None:
    state.check_open()
    await state.engine.check_health()


async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})


async def metrics(request: Request) -> PlainTextResponse:
    text = render_together(state.metrics.registry for state in server_state(request).all)
    return PlainTextResponse(text, media_type=METRICS_TYPE)
