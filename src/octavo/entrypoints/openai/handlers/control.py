"""What operators do to a model: `/sleep`, `/wake_up`, `/is_sleeping`, `/reset_prefix_cache`. Query parameters as vLLM's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from octavo.entrypoints.openai.state import ServerState, server_state
from octavo.lib.errors import ConflictError


async def sleep(request: Request, level: int = 1, mode: str = "abort", model: str | None = None) -> Response:
    """Free the memory of the pages (level 1) and of the weights (level 2); requests are refused until `/wake_up`."""
    for state in _meant(request, model):
        await state.engine.sleep(level, mode)
    return Response(status_code=200)


async def wake_up(
    request: Request, tags: Annotated[list[str] | None, Query()] = None, model: str | None = None
) -> Response:
    """Bring back what `/sleep` freed; answers when it is there."""
    for state in _meant(request, model):
        await state.engine.wake_up(tags)
    return Response(status_code=200)


async def is_sleeping(request: Request, model: str | None = None) -> JSONResponse:
    """Whether requests are refused because something sleeps; of several models, whether all sleep."""
    asleep = [await state.engine.is_sleeping() for state in _meant(request, model)]
    return JSONResponse({"is_sleeping": all(asleep)})


async def reset_prefix_cache(request: Request, model: str | None = None) -> Response:
    """Forget cached pages, which is possible while no request holds any."""
    done = [await state.engine.reset_prefix_cache() for state in _meant(request, model)]
    if not all(done):
        raise ConflictError(
            "The prefix cache was not reset: requests hold pages of it. Try again when none runs."
        )
    return Response(status_code=200)


def _meant(request: Request, model: str | None) -> Sequence[ServerState]:
    """The model of the query; without one, all."""
    return server_state(request).all if model is None else (server_state(request, model),)
