"""Plain ASGI middleware: keys, request ids, body size. No buffering, so streams pass untouched."""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.errors import error_response
from octavo.entrypoints.openai.uploads import Uploads
from octavo.lib.errors import AuthenticationError, InvalidRequestError, OctavoError

# Probes carry no key; a browser's preflight cannot.
OPEN_PATHS = frozenset({"/health", "/ready", "/ping"})
# Neither can the page that asks for the key: its files are the same for everybody. What it calls is guarded.
PAGE, PAGE_FILES = "/", "/web/"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")


class ApiKeys:
    """Answers 401 to whoever brings none of the keys. Compares digests in constant time."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_open(scope) or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = AuthenticationError("Missing or unknown API key; send it as `Authorization: Bearer KEY`.")
        await error_response(error)(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return (
            path in OPEN_PATHS or scope["method"] == "OPTIONS" or path == PAGE or path.startswith(PAGE_FILES)
        )

    def _knows(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        given = _digest(key.strip())
        # Compare with every key, so that the time taken tells nothing.
        return any([hmac.compare_digest(given, digest) for digest in self._digests])  # noqa: C419


class RequestIds:
    """Gives each request an id (the client's, if it is a sane one) and answers with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.match(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


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


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
