"""What operators ask: `/health`, `/ready`, `/ping`, `/version`, `/metrics`, `/load`."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from octavo.entrypoints.openai.errors import error_response
from octavo.entrypoints.openai.state import server_state
from octavo.lib.errors import OctavoError
from octavo.version import __version__

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request) -> Response:
    """200 while the engine lives and makes progress; 503 with the reason when it does not."""
    try:
        await server_state(request).engine.check_health()
    except OctavoError as error:
        return error_response(error)
    return Response(status_code=200)


async def ready(request: Request) -> Response:
    """200 when new requests are taken: not while starting, draining or without an engine."""
    state = server_state(request)
    try:
        state.check_open()
        await state.engine.check_health()
    except OctavoError as error:
        return error_response(error)
    return Response(status_code=200)


async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})


async def metrics(request: Request) -> PlainTextResponse:
    return PlainTextResponse(server_state(request).metrics.render(), media_type=METRICS_TYPE)
