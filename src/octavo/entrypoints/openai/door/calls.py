"""A call's beginning and end: an id, a place in a trace, a count, a line in the log. Never a body, a query or a key."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.door.paths import path_of
from octavo.entrypoints.openai.door.trace_context import origin_of, traceparent_of
from octavo.lib.origin import ORIGIN, Origin
from octavo.metrics.http_metrics import HttpCall, HttpMetrics

FORMATS = ("none", "text", "json")
_MAX_PATH = 200
_HUNG_UP = 499
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
logger = logging.getLogger("octavo.access")


def configure_access_log() -> None:
    """Lines as they are, on stderr: a JSON line must not have a prefix."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


class Calls:
    """Names each request (the client's id, if it is a sane one), counts it for `/metrics` and `/load`, and logs it.

    Args:
        answer_ids: Whether the answer has `X-Request-Id` and `traceparent`.
        line_format: `none`, `text` or `json`.
        quiet_paths: Paths that are not logged.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: HttpMetrics,
        *,
        answer_ids: bool,
        line_format: str,
        quiet_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._answer_ids = answer_ids
        self._format = line_format
        self._quiet = frozenset(quiet_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        origin = _named(scope)
        begin, status, size = time.monotonic(), _HUNG_UP, 0

        # The one wrapper around each part of a stream: its head is all that matters here.
        async def note_head(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                head = MutableHeaders(scope=message)
                size = _number(head.get("content-length", ""))
                if self._answer_ids:
                    head["X-Request-Id"], head["traceparent"] = origin.request_id, traceparent_of(origin)
            await send(message)

        self._metrics.begin()
        try:
            await self._app(scope, receive, note_head)
        except Exception:
            status = 500
            raise
        finally:
            self._end(scope, origin, status, size, time.monotonic() - begin)

    def _end(self, scope: Scope, origin: Origin, status: int, size: int, seconds: float) -> None:
        # The route's own pattern: a path that a client made up must not become a label.
        handler = getattr(scope.get("route"), "path", "none")
        asked = _number(Headers(scope=scope).get("content-length", ""))
        self._metrics.end(HttpCall(handler, scope["method"], status, seconds, asked, size))
        if self._format != "none" and path_of(scope) not in self._quiet:
            logger.info("%s", _line(self._format, scope, origin, status, seconds))


def _named(scope: Scope) -> Origin:
    headers = Headers(scope=scope)
    given = headers.get("x-request-id", "")
    request_id = given if _REQUEST_ID.match(given) else uuid.uuid4().hex
    scope.setdefault("state", {})["request_id"] = request_id
    origin = origin_of(headers.get("traceparent", ""), request_id)
    ORIGIN.set(origin)
    return origin


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _line(line_format: str, scope: Scope, origin: Origin, status: int, seconds: float) -> str:
    client = scope.get("client") or ("-", 0)
    facts = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "method": scope["method"],
        "path": path_of(scope)[:_MAX_PATH],
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
        "client": client[0],
        "caller": origin.caller,
        "request_id": origin.request_id,
        "trace_id": origin.trace_id,
    }
    if line_format == "json":
        return json.dumps(facts)
    # `!r`: a line break in a path must not start a line of its own.
    return " ".join(
        f"{name}={value!r}" if name == "path" else f"{name}={value}" for name, value in facts.items()
    )
