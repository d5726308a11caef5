"""What operators ask: `/health`, `/ready`, `/ping`, `/version`, `/metrics`, `/load`."""

from __future__ import annotations

import dataclasses
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
    state = server_state(request)
    for each in state.all:
        each.metrics.on_sleep(each.engine.sleep_level)
        if not each.engine.is_alive:
            each.metrics.on_engine_down()
    text = render_together([state.http.registry, *(each.metrics.registry for each in state.all)])
    return PlainTextResponse(text, media_type=METRICS_TYPE)


async def load(request: Request) -> JSONResponse:
    """Requests that are being answered, this one left out."""
    return JSONResponse({"server_load": max(0, server_state(request).http.num_open - 1)})


async def server_info(request: Request) -> JSONResponse:
    """The settings that run, with `--enable-server-info`; secrets and paths of secrets left out."""
    states = server_state(request).all
    server = dataclasses.asdict(states[0].args)
    for name in ("api_key", "api_key_file", "ssl_keyfile"):
        server.pop(name)
    engines = [dataclasses.asdict(state.engine.config) for state in states]
    return JSONResponse({"version": __version__, "server": server, "engine": engines[0], "engines": engines})
