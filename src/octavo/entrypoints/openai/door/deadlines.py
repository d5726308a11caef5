"""A time by which a request must be answered; past it, it is ended in the engine like one whose client has gone."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.errors import error_of, error_response
from octavo.lib.errors import InvalidRequestError, OctavoError, RequestTimeoutError
from octavo.lib.origin import ORIGIN, Origin

HEADER = "x-request-timeout"
# For a handler to say in its own words, in the middle of a stream too, that the engine ended its requests.
LAST_WORDS_SECONDS = 2.0

EndCall = Callable[[Origin, OctavoError], int]


class Deadlines:
    """Ends POST requests that take longer than the server's limit, or than the client says in `X-Request-Timeout` (seconds).

    Args:
        limit: Seconds; 0: none but the client's own.
        end: Ends what a call has running in the engine with an error; how many requests that were.
    """

    def __init__(self, app: ASGIApp, limit: float, end: EndCall) -> None:
        self._app = app
        self._limit = limit
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            seconds = _seconds(Headers(scope=scope).get(HEADER), self._limit)
        except InvalidRequestError as error:
            await error_response(error)(scope, receive, send)
            return
        if seconds:
            await self._within(seconds, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _within(self, seconds: float, scope: Scope, receive: Receive, send: Send) -> None:
        late = RequestTimeoutError(f"The request was not answered within its {seconds:g} s and was ended.")
        answer = _Answer(send)
        try:
            async with asyncio.timeout(None) as deadline:
                loop = asyncio.get_running_loop()
                origin = ORIGIN.get()

                def on_time() -> None:
                    ended = self._end(origin, late) if origin is not None else 0
                    deadline.reschedule(loop.time() + (LAST_WORDS_SECONDS if ended else 0))

                timer = loop.call_later(seconds, on_time)
                try:
                    await self._app(scope, receive, answer.send)
                finally:
                    timer.cancel()
        except TimeoutError:
            if not deadline.expired():
                raise
            await answer.end_with(late, scope, receive)


def _seconds(asked: str | None, limit: float) -> float:
    if asked is None:
        return limit
    try:
        seconds = float(asked)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidRequestError(
            f"{HEADER} must be a number of seconds above 0, got {asked[:40]!r}.", param=HEADER
        )
    return min(seconds, limit) if limit else seconds


class _Answer:
    """What has gone out of an answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self._is_stream = False
        self._whole = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            kind = Headers(raw=message["headers"]).get("content-type", "")
            self._is_stream = kind.startswith("text/event-stream")
        elif message["type"] == "http.response.body":
            self._whole = not message.get("more_body", False)
        await self._send(message)

    async def end_with(self, error: OctavoError, scope: Scope, receive: Receive) -> None:
        """Say `error`: as a whole answer if nothing went out, as a stream's last event if one runs."""
        if not self._begun:
            await error_response(error)(scope, receive, self._send)
        elif self._is_stream and not self._whole:
            _, body, _ = error_of(error)
            event = f"data: {json.dumps(body)}\n\n".encode()
            await self._send({"type": "http.response.body", "body": event})
