"""What operators do to a model: `/sleep`, `/wake_up`, `/is_sleeping`, `/reset_prefix_cache`. Query parameters as vLLM's."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from octavo.entrypoints.openai.state import server_state
from octavo.lib.errors import ConflictError


async def sleep(request: Request, level: int = 1, mode: str = "abort") -> Response:
    """Free the memory of the pages (level 1) and of the weights (level 2); requests are refused until `/wake_up`."""
    await server_state(request).engine.sleep(level, mode)
    return Response(status_code=200)


async def wake_up(request: Request, tags: Annotated[list[str] | None, Query()] = None) -> Response:
    """Bring back what `/sleep` freed; answers when it is there."""
    await server_state(request).engine.wake_up(tags)
    return Response(status_code=200)


async def is_sleeping(request: Request) -> JSONResponse:
    """Whether requests are refused because something sleeps."""
    return JSONResponse({"is_sleeping": await server_state(request).engine.is_sleeping()})


async def reset_prefix_cache(request: Request) -> Response:
    """Forget cached pages, which is possible while no request holds any."""
    if not await server_state(request).engine.reset_prefix_cache():
        raise ConflictError(
            "The prefix cache was not reset: requests hold pages of it. Try again when none runs."
        )
    return Response(status_code=200)
