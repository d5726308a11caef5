"""Lines of a batch file: what each asks, and the record that answers it.

The format is that of OpenAI's Batch API: `{"custom_id", "method", "url", "body"}` in, `{"id", "custom_id", "response",
"error"}` out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

MAX_LINE_BYTES = 64 * 1024 * 1024
URLS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/score",
    "/score", "/v1/rerank", "/v2/rerank", "/rerank", "/classify", "/pooling",
)  # fmt: skip
_SHOWN = 100


@dataclass(frozen=True)
class BatchRequest:
    """One request of a file."""

    number: int
    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True)
class BadLine:
    """A line that is no request: why, and the id that its answer can carry."""

    number: int
    custom_id: str | None
    reason: str


Line = BatchRequest | BadLine


def read_lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file, one at a time; empty ones are skipped."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while (more := file.readline(MAX_LINE_BYTES)) and not more.endswith(b"\n"):
                pass
            yield BadLine(number, None, f"the line has more than {MAX_LINE_BYTES} bytes")
        elif raw.strip():
            yield parse_line(raw, number)


def parse_line(raw: bytes, number: int) -> Line:
    """One line."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return BadLine(number, None, f"not JSON: {error}")
    if not isinstance(line, dict):
        return BadLine(number, None, "not a JSON object")
    custom_id = line.get("custom_id")
    if not isinstance(custom_id, str):
        return BadLine(number, None, "custom_id must be a text")
    reason = _fault(line)
    if reason is not None:
        return BadLine(number, custom_id, reason)
    return BatchRequest(number, custom_id, line["url"], line["body"])


def _fault(line: dict[str, Any]) -> str | None:
    method, url, body = line.get("method", "POST"), line.get("url"), line.get("body")
    if method != "POST":
        return f"method must be POST, got {str(method)[:_SHOWN]!r}"
    if url not in URLS:
        return f"url must be one of {', '.join(URLS)}, got {str(url)[:_SHOWN]!r}"
    if not isinstance(body, dict):
        return "body must be an object"
    if body.get("stream"):
        return "body.stream has no meaning in a batch"
    if body.get("background"):
        return "body.background has no meaning in a batch"
    return None


def answer_record(request: BatchRequest, status: int, request_id: str | None, body: Any) -> dict[str, Any]:
    """The record of a request that was answered, well or with an error of its own."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    error = None if status < 400 else {"code": str(status), "message": _message(body)}
    return _record(request.custom_id, response, error)


def error_record(custom_id: str | None, code: str, message: str) -> dict[str, Any]:
    """The record of what got no answer."""
    return _record(custom_id, None, {"code": code, "message": message})


def bad_line_record(line: BadLine) -> dict[str, Any]:
    """The record of a line that is no request; it names the line, as its id may be unknown."""
    return error_record(line.custom_id, "invalid_line", f"line {line.number}: {line.reason}")


def _record(
    custom_id: str | None, response: dict[str, Any] | None, error: dict[str, Any] | None
) -> dict[str, Any]:
    request_id = f"batch_req_{uuid.uuid4().hex}"
    return {"id": request_id, "custom_id": custom_id, "response": response, "error": error}


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else "The request failed."
