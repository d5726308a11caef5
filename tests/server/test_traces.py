"""Spans of requests, in the client's trace."""

from __future__ import annotations

import gzip
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.server.harness import running

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.traces import SPAN, Traces

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_request_is_a_span_below_its_clients() -> None:
    spans = InMemorySpanExporter()
    with running(step_seconds=0.005) as server:
        server.engine.add_listener(Traces(SimpleSpanProcessor(spans)))
        body = {"prompt": "the-prompt", "max_tokens": 4, "n": 2, "ignore_eos": True, "temperature": 0.5}
        begin = time.time()
        for flags in ("01", "00"):  # the second trace is one that the client does not record
            header = f"00-{TRACE}-{PARENT}-{flags}"
            assert server.post("/v1/completions", body, traceparent=header).status_code == 200
        told = server.post("/v1/completions", body).headers["traceparent"]
    recorded, own = spans.get_finished_spans()
    assert recorded.name == SPAN
    assert recorded.context is not None
    assert recorded.parent is not None
    assert (f"{recorded.context.trace_id:032x}", f"{recorded.parent.span_id:016x}") == (TRACE, PARENT)
    attributes = dict(recorded.attributes or {})
    assert attributes["gen_ai.request.n"] == 2
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["gen_ai.usage.completion_tokens"] == 8
    assert attributes["gen_ai.usage.prompt_tokens"] == 10
    first, whole = attributes["gen_ai.latency.time_to_first_token"], attributes["gen_ai.latency.e2e"]
    assert isinstance(first, float)
    assert isinstance(whole, float)
    assert 0 < first <= whole
    assert recorded.start_time is not None
    assert recorded.start_time / 1e9 >= begin - 1
    assert "the-prompt" not in str(attributes)
    assert own.context is not None
    assert f"{own.context.trace_id:032x}" == told.split("-")[1]


def test_a_collector_gets_them() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    got = queue.Queue[tuple[str, bytes]]()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
        with running(server_args=ServerArgs(shutdown_timeout=1, otlp_traces_endpoint=endpoint)) as server:
            assert server.complete("the-prompt", max_tokens=2).status_code == 200
            path, sent = got.get(timeout=60)
        collector.shutdown()
    assert path == "/v1/traces"
    text = sent if sent[:2] != b"\x1f\x8b" else gzip.decompress(sent)
    assert b"llm_request" in text
    assert b"the-prompt" not in text
