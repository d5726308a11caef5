"""Every error as OpenAI's error object: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import logging
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from octavo.lib.errors import CheckpointError, OctavoError, OverloadedError

logger = logging.getLogger(__name__)

_HTTP_TYPES = {
    404: "not_found_error",
    401: "authentication_error",
    429: "overloaded_error",
    503: "unavailable_error",
}
_MAX_ECHO = 200


def error_body(message: str, error_type: str, status: int, param: str | None = None) -> dict[str, Any]:
    """The body of a failed request, and the event of a failed stream."""
    return {"error": {"message": message, "type": error_type, "param": param, "code": status}}


def error_of(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers for `error`. What was not raised on purpose says nothing of our insides."""
    if isinstance(error, OctavoError) and not isinstance(error, CheckpointError):
        headers = {}
        if isinstance(error, OverloadedError):
            headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
        if error.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return error.status, error_body(error.message, error.error_type, error.status, error.param), headers
    logger.error("Request failed unexpectedly", exc_info=error)
    return (
        500,
        error_body("Internal server error; the server's log has the cause.", "internal_server_error", 500),
        {},
    )


def shown(error: Exception) -> OctavoError:
    """The error as a client may see it."""
    _, body, _ = error_of(error)
    return error if isinstance(error, OctavoError) else OctavoError(body["error"]["message"])


def error_response(error: Exception) -> JSONResponse:
    """`error` as a whole answer."""
    status, body, headers = error_of(error)
    return JSONResponse(body, status, headers)


def install_error_handlers(app: FastAPI) -> None:
    """Route every way in which a request can fail through the one error object."""
    app.add_exception_handler(OctavoError, _on_any)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_hang_up)
    app.add_exception_handler(Exception, _on_any)


async def _on_any(_: Request, error: Exception) -> JSONResponse:
    return error_response(error)


async def _on_hang_up(_: Request, __: Exception) -> Response:
    """Nobody is there to read this; the status is what nginx logs for a client that closed the request."""
    return Response(status_code=499)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    kind = _HTTP_TYPES.get(error.status_code, "invalid_request_error")
    detail = str(error.detail)
    if error.status_code in (404, 405):
        detail = f"{detail}: this server has no {request.method} {request.url.path[:_MAX_ECHO]}."
    body = error_body(detail, kind, error.status_code)
    return JSONResponse(body, error.status_code, error.headers)


async def _on_validation(_: Request, error: Exception) -> JSONResponse:
    """Pydantic's findings: the first one becomes the message, its place the `param`."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if isinstance(first.get("input"), bytes):
        # Bodies of another type are not read as JSON, lest a page in a browser post here without asking (CORS).
        message = "The body must be JSON, sent with the header `Content-Type: application/json`."
        return JSONResponse(error_body(message, "invalid_request_error", 415), 415)
    place = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        message, param = (
            f"The body is not valid JSON: {first.get('ctx', {}).get('error', 'syntax error')}.",
            None,
        )
    else:
        param = _field_of(place)
        message = f"{'.'.join(place) or 'body'}: {_reason(first)}"
    return JSONResponse(error_body(message, "invalid_request_error", 400, param), 400)


def _field_of(place: list[str]) -> str | None:
    return place[0] if place else None


def _reason(finding: dict[str, Any]) -> str:
    if finding["type"] == "extra_forbidden":
        return "no such field"
    got = repr(finding.get("input"))
    return f"{finding['msg']}, got {got[:_MAX_ECHO]}{'...' if len(got) > _MAX_ECHO else ''}"
