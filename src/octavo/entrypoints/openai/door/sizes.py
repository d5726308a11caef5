"""Sizes of a request: its head, its body, and how long the body may take. No buffering, so streams pass untouched."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.door.http_protocol import too_large_head
from octavo.entrypoints.openai.errors import error_response
from octavo.entrypoints.openai.uploads import Uploads
from octavo.lib.errors import InvalidRequestError, OctavoError


class HeadLimit:
    """Refuses requests with too many headers, or too long ones, before anything reads them."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_count: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_count = max_count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refusal(scope)) is not None:
            await error_response(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> InvalidRequestError | None:
        headers = scope["headers"]
        if len(headers) > self._max_count:
            error = InvalidRequestError(
                f"The request has {len(headers)} headers; at most {self._max_count} are taken (--max-header-count).",
                param="headers",
            )
            error.status = 431
            return error
        line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        # Colon, space and line end of each header.
        size = line + sum(len(name) + len(value) + 4 for name, value in headers)
        return too_large_head(self._max_bytes) if size > self._max_bytes else None


class BodyLimit:
    """Refuses bodies over a number of bytes, declared or streamed, before they are gathered, and those that never end."""

    def __init__(self, app: ASGIApp, limit: int, uploads: Uploads) -> None:
        self._app = app
        self._limit = limit
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdigit() and int(declared) > self._limit:
            await error_response(self._too_large())(scope, receive, send)
            return
        body = _Body(receive, self._uploads, self._limit)

        async def send_unless_refused(message: Message) -> None:
            if body.within_limits:
                await send(message)

        await self._app(scope, body.receive, send_unless_refused)
        if not body.within_limits:
            await error_response(body.refusal or self._too_large())(scope, receive, send)

    def _too_large(self) -> InvalidRequestError:
        error = InvalidRequestError(
            f"The request body exceeds the limit of {self._limit} bytes.", param="body"
        )
        error.status = 413
        return error


class _Body:
    """One body as the application receives it. Once refused, nothing more is handed on: the client seems to be gone."""

    def __init__(self, receive: Receive, uploads: Uploads, limit: int) -> None:
        self._receive = receive
        self._uploads = uploads
        self._left = limit
        self._whole = False
        self.refusal: OctavoError | None = None

    @property
    def within_limits(self) -> bool:
        return self._left >= 0 and self.refusal is None

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            message = await self._uploads.next(self._receive)
        except OctavoError as error:
            self.refusal = error
            return {"type": "http.disconnect"}
        self._whole = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        return message if self.within_limits else {"type": "http.disconnect"}
