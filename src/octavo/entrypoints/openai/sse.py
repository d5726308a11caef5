"""Server-sent events: one JSON object an event, `[DONE]` at the end, an error object where a stream breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from octavo.entrypoints.openai.errors import error_of

DONE = b"data: [DONE]\n\n"
# Proxies must neither buffer nor transform a stream.
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

_encoder = msgspec.json.Encoder()


def event(body: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + _encoder.encode(body) + b"\n\n"


def sse_response(events: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    """Stream `events`; the head of the answer has gone out, so an error becomes the last event."""
    return StreamingResponse(_encoded(events), media_type="text/event-stream", headers=HEADERS)


def typed_sse_response(events: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    """Stream events that have a `type`, named by it. Such streams end with an event of their own, not with `[DONE]`."""
    return StreamingResponse(_typed(events), media_type="text/event-stream", headers=HEADERS)


async def _typed(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async for body in events:
        yield b"event: " + body["type"].encode() + b"\n" + event(body)


async def _encoded(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    try:
        async for body in events:
            yield event(body)
    except Exception as error:
        _, body, _ = error_of(error)
        yield event(body)
    yield DONE
