"""Anthropic's face of what lies around the handlers: errors in its shape.

Errors come from many places (keys, limits, validation, handlers). They are all written as OpenAI's object, and on
these routes translated once, on their way out.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.door.paths import path_of
from octavo.entrypoints.openai.errors import error_of, error_response

_ROUTES = "/v1/messages"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """The body of a failed request."""
    kind = _TYPES.get(status, "api_error" if status >= 500 and status != 501 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def error_event(error: Exception) -> dict[str, Any]:
    """The last event of a stream that broke."""
    status, body, _ = error_of(error)
    return error_body(status, body["error"]["message"])


class AnthropicFace:
    """Answers errors of `/v1/messages` in Anthropic's shape."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = path_of(scope)
        if path == _ROUTES or path.startswith(_ROUTES + "/"):
            await self._translated(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _translated(self, scope: Scope, receive: Receive, send: Send) -> None:
        translator = _Translator(send, scope.get("state", {}).get("request_id"))
        try:
            await self._app(scope, receive, translator.send)
        except Exception as error:
            # What nobody foresaw would be answered outside of all middleware.
            if translator.begun:
                raise
            await error_response(error)(scope, receive, translator.send)


class _Translator:
    """Holds back the head of a failed answer until its body can be written anew."""

    def __init__(self, send: Send, request_id: str | None) -> None:
        self.begun = False
        self._send = send
        self._request_id = request_id
        self._head: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        """Take one message of the answer."""
        self.begun = True
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._head = message
        elif self._head is None or message["type"] != "http.response.body":
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish(self._head)

    async def _finish(self, head: Message) -> None:
        headers = MutableHeaders(raw=list(head["headers"]))
        body = _translated(head["status"], self._body, self._request_id)
        headers["content-length"] = str(len(body))
        await self._send({**head, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})


def _translated(status: int, body: bytes, request_id: str | None) -> bytes:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return body
    return json.dumps(error_body(status, message, request_id)).encode()
