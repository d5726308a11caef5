"""`benchmarks.front_cost` against a server of its own kind that answers at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
from benchmarks.front_cost import ANSWER, Cost, measure, row

ASKED: list[dict[str, object]] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        ASKED.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200 if ASKED[-1]["prompt"] else 400)
        self.end_headers()
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("stream", [False, True])
def test_every_prompt_is_asked_once(url: str, stream: bool) -> None:
    cost = measure(psutil.Process(), url, [[1], [2]], stream=stream)
    assert sorted((asked["prompt"], asked["stream"], asked["max_tokens"]) for asked in ASKED) == [
        ([1], stream, ANSWER),
        ([2], stream, ANSWER),
    ]
    assert cost.speed > 0
    assert cost.microseconds * cost.speed / 1e6 == pytest.approx(cost.share)


def test_a_refusal_is_no_measurement(url: str) -> None:
    with pytest.raises(Exception, match="400"):
        measure(psutil.Process(), url, [[]], stream=False)


def test_a_row_has_medians() -> None:
    costs = [Cost(90, 0.1, 800), Cost(10, 0.2, 700), Cost(50, 0.3, 900)]
    assert row(32, "streamed", costs) == "| 32 | streamed | 50 | 20 | 800 |"
