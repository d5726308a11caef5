"""The small client: what it makes of the bytes of an answer, however they are cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo.entrypoints.bench.outcome import Outcome, Recorder
from octavo.entrypoints.bench.stream import StreamProtocol, Target, ask
from octavo.lib.errors import ConfigError


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


class Connection:
    """A protocol without a socket. Its clock counts the deliveries: the n-th one comes at second n."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.recorder = Recorder(Outcome(0.0, prompt_len=3))
        self.now = 0.0
        self.protocol = StreamProtocol(b"POST", self.recorder, lambda: self.now, self.done)
        self.transport = Transport()
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    def deliver(self, *pieces: bytes) -> Outcome:
        for piece in pieces:
            self.now += 1.0
            self.protocol.data_received(piece)
        self.protocol.connection_lost(None)
        assert self.done.done()
        self.loop.close()
        return self.recorder.close()


def chunked(*parts: bytes) -> list[bytes]:
    return [f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts] + [b"0\r\n\r\n"]


def event(**body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def text(piece: str, finish_reason: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "text": piece, "finish_reason": finish_reason}])


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 4})
DONE = b"data: [DONE]\n\n"
ANSWER = [text("a"), text(""), text("b"), text("c", "length"), text("", "stop"), USAGE, DONE]


def test_times_text_and_counts() -> None:
    """The clock stands at 1 for the head, at 2, 3, ... for the events."""
    outcome = Connection().deliver(HEAD, *chunked(*ANSWER))
    assert outcome.error == ""
    assert outcome.piece_times == [2.0, 3.0, 4.0, 5.0]
    assert (outcome.text, outcome.prompt_len, outcome.output_len) == ("abc", 9, 4)
    assert (outcome.ttft, outcome.e2el, outcome.tpot, outcome.itls) == (2.0, 5.0, 1.0, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_cuts_do_not_matter(size: int) -> None:
    data = HEAD + b"".join(chunked(*ANSWER))
    outcome = Connection().deliver(*(data[at : at + size] for at in range(0, len(data), size)))
    assert (outcome.text, outcome.output_len, outcome.error) == ("abc", 4, "")
    assert len(outcome.piece_times) == 4


def test_an_answer_that_ends_with_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(b"".join(ANSWER))
    assert Connection().deliver(head, *ANSWER).text == "abc"


def test_chat_counts_from_the_first_word() -> None:
    def delta(**fields: Any) -> bytes:
        return event(choices=[{"index": 0, "delta": fields}])

    pieces = [delta(role="assistant", content=""), delta(content="a"), delta(reasoning_content="b"), DONE]
    outcome = Connection().deliver(HEAD, *chunked(*pieces))
    assert outcome.piece_times == [3.0, 4.0]
    assert (outcome.text, outcome.output_len) == ("ab", 2)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b'HTTP/1.1 400 Bad Request\r\ncontent-length: 33\r\n\r\n{"error": {"message": "too ', b'big"}}'], "HTTP 400: too big"),
        ([HEAD, *chunked(text("a"), event(error={"message": "engine died"}), DONE)], "engine died"),
        ([HEAD, *chunked(text("a"))[:1]], "the connection broke (closed before the end)"),
        ([HEAD, *chunked(DONE)], "the answer has no token"),
        ([HEAD, *chunked(b"data: {nonsense\n\n")], "an event cannot be read"),
        ([b"SSH-2.0-OpenSSH\r\n"], "the answer is not HTTP"),
    ],
)  # fmt: skip
def test_failures_are_told(pieces: list[bytes], error: str) -> None:
    assert Connection().deliver(*pieces).error.startswith(error)


def test_nobody_listens() -> None:
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = Target.of(f"http://127.0.0.1:{closed.getsockname()[1]}/v1/completions", {})
        outcome = asyncio.run(ask(target, {}, 1, lambda: 0.0))
    assert outcome.error.startswith("no connection to 127.0.0.1")


def test_the_request() -> None:
    target = Target.of("http://[::1]:81/v1/completions", {"Authorization": "Bearer key"})
    head, _, body = target.request({"a": 1}).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    assert {"Host: [::1]:81", "Content-Length: 8", "Authorization: Bearer key"} <= set(lines)
    assert json.loads(body) == {"a": 1}


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://a:b"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        Target.of(url, {})
