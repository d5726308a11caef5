"""Uvicorn's HTTP protocol with an end to heads: in bytes and in seconds, before anything of them reaches the application."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from octavo.entrypoints.openai.errors import error_of
from octavo.lib.errors import InvalidRequestError, OctavoError

HEAD_SECONDS = 30.0


def too_large_head(limit: int) -> InvalidRequestError:
    """What is answered to a head over `limit` bytes."""
    error = InvalidRequestError(
        f"The request's line and headers exceed the limit of {limit} bytes (--max-header-bytes).",
        param="headers",
    )
    error.status = 431
    return error


def bounded_protocol(max_head_bytes: int, head_seconds: float = HEAD_SECONDS) -> type[asyncio.Protocol]:
    """A protocol class for `uvicorn.Config(http=...)`.

    Args:
        max_head_bytes: Of request line and headers; more gets status 431.
        head_seconds: From the connection, or the first byte of a further request, to the end of its head; then status 408.
    """

    class BoundedProtocol(HttpToolsProtocol):
        """Counts bytes and time of each head."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head_bytes = 0
            self._in_head = True
            self._patience: asyncio.TimerHandle | None = None
            self._await_head()

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head_bytes += len(data)
                self._await_head()
            super().data_received(data)
            if self._in_head and self._head_bytes > max_head_bytes:
                self._refuse(too_large_head(max_head_bytes))

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_waiting()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head, self._head_bytes = True, 0

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._patience is None:
                self._patience = self.loop.call_later(head_seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

        def _give_up(self) -> None:
            error = InvalidRequestError(
                f"The request's head did not end within {head_seconds:.0f} s.", param="headers"
            )
            error.status = 408
            if self._is_answering():  # a pipelined head has time until the answer before it is out
                self._patience = None
                self._await_head()
            else:
                self._refuse(error)

        def _is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _refuse(self, error: OctavoError) -> None:
            self._stop_waiting()
            if self.transport.is_closing():
                return
            if self._is_answering():  # nothing may be said in the middle of another answer
                self.transport.close()
                return
            status, body, _ = error_of(error)
            content = json.dumps(body).encode()
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
            self.transport.close()

    return BoundedProtocol
