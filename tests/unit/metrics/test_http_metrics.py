"""Metrics of the HTTP face."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from octavo.metrics.http_metrics import HttpCall, HttpMetrics
from octavo.metrics.together import render_together

NAMES = {
    "vllm:http_requests_open": "gauge",
    "vllm:websocket_connections": "counter",
    "vllm:websocket_connections_active": "gauge",
    "vllm:websocket_connection_duration_seconds": "histogram",
    "http_requests": "counter",
    "http_request_size_bytes": "summary",
    "http_response_size_bytes": "summary",
    "http_request_duration_seconds": "histogram",
    "http_request_duration_highr_seconds": "histogram",
}


def test_names_are_those_of_existing_boards() -> None:
    text = render_together([HttpMetrics("vllm").registry]).decode()
    found = {family.name: family.type for family in text_string_to_metric_families(text)}
    own = {name: kind for name, kind in found.items() if not name.startswith(("python_", "process_"))}
    assert own == NAMES
    assert found["process_resident_memory_bytes"] == "gauge"
    assert "python_info" in found


def test_a_call_is_counted_once_and_a_made_up_method_makes_no_series() -> None:
    http = HttpMetrics("octavo")
    http.begin()
    assert http.num_open == 1
    http.end(HttpCall("/v1/completions", "BREW", 429, 0.2, 10, 0))
    value = http.registry.get_sample_value
    assert http.num_open == value("octavo:http_requests_open") == 0
    labels = {"handler": "/v1/completions", "method": "other"}
    assert value("http_requests_total", labels | {"status": "4xx"}) == 1
    assert value("http_request_duration_seconds_bucket", labels | {"le": "0.1"}) == 0
    assert value("http_request_duration_seconds_bucket", labels | {"le": "0.5"}) == 1
    assert value("http_request_size_bytes_sum", {"handler": "/v1/completions"}) == 10
