"""A small client for event streams, one connection a request: what it costs must not show in what it measures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from octavo.entrypoints.bench.arguments import refuse
from octavo.entrypoints.bench.outcome import Outcome, Recorder

Clock = Callable[[], float]
MAX_ERROR_BODY = 65536


@dataclass(frozen=True)
class Target:
    """Where requests go."""

    host: str
    port: int
    path: str
    tls: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str]) -> Target:
        """Of a whole URL.

        Raises:
            ConfigError: it is no http(s) URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise refuse("base_url", f"{url!r} is no URL ({error})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise refuse("base_url", f"must begin with http:// or https:// and name a host, got {url!r}")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), parts.path or "/", tls, headers)

    def request(self, body: Mapping[str, Any]) -> bytes:
        """The bytes of a POST."""
        payload = json.dumps(body).encode()
        host = f"[{self.host}]" if ":" in self.host else self.host
        headers = {
            "Host": f"{host}:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
            "Accept": "text/event-stream",
            "Connection": "close",
        } | dict(self.headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + payload


class Events:
    """Cuts the bytes of an event stream into the data of its events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that `data` completes; comments and other fields are skipped."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


class StreamProtocol(asyncio.Protocol):
    """Sends one request when connected and records the answer. The time of an event is when its bytes were received."""

    def __init__(self, request: bytes, recorder: Recorder, clock: Clock, done: asyncio.Future[None]) -> None:
        self._request = request
        self._recorder = recorder
        self._clock = clock
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self._events = Events()
        self._error_body = b""
        self._now = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now = self._clock()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(f"the answer is not HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        """The parser found a part of the body."""
        if self._parser.get_status_code() != 200:
            self._error_body = (self._error_body + body)[:MAX_ERROR_BODY]
            return
        for event in self._events.feed(body):
            self._recorder.event(event, self._now)

    def on_message_complete(self) -> None:
        """The parser found the end of the answer."""
        status = self._parser.get_status_code()
        self._finish("" if status == 200 else f"HTTP {status}: {_message(self._error_body)}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(f"the connection broke ({exc or 'closed before the end'})")

    def _finish(self, error: str) -> None:
        if self._done.done():
            return
        self._recorder.outcome.error = self._recorder.outcome.error or error
        self._done.set_result(None)
        self._transport.close()


async def ask(target: Target, body: Mapping[str, Any], prompt_len: int, clock: Clock) -> Outcome:
    """Send a request whose answer is a stream of events; what fails is told in the outcome."""
    request = target.request(body)
    loop = asyncio.get_running_loop()
    recorder = Recorder(Outcome(clock(), prompt_len))
    done: asyncio.Future[None] = loop.create_future()
    try:
        transport, _ = await loop.create_connection(
            lambda: StreamProtocol(request, recorder, clock, done),
            target.host,
            target.port,
            ssl=target.tls or None,
        )
    except OSError as error:
        recorder.outcome.error = f"no connection to {target.host}:{target.port} ({error})"
        return recorder.close()
    try:
        await done
    finally:
        transport.close()
    return recorder.close()


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
