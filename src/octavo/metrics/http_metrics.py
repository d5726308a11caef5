"""What the HTTP face and its process tell Prometheus, under the names of prometheus-fastapi-instrumentator that vLLM's boards use."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
)

from octavo.metrics.inactive import INACTIVE_HTTP, add_inactive

_METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH"})
DURATIONS = (0.1, 0.5, 1.0)
FINE_DURATIONS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip


@dataclass(frozen=True)
class HttpCall:
    """One request that was answered."""

    handler: str
    """Pattern of its route; `none`: there is no such route."""
    method: str
    status: int
    seconds: float
    request_bytes: int
    """Of the body, as declared; 0: not declared."""
    response_bytes: int
    """Of a whole answer; 0: a stream."""


class HttpMetrics:
    """Requests by route, method and status, over all models of a server.

    Has labels for our own routes only, so that clients cannot make series.

    Args:
        prefix: Text before the colon of the names that are ours.
    """

    def __init__(self, prefix: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "http_requests", "Requests answered.", ["handler", "method", "status"], registry=registry
        )
        self._asked = Summary(
            "http_request_size_bytes", "Declared sizes of bodies.", ["handler"], registry=registry
        )
        self._answered = Summary(
            "http_response_size_bytes",
            "Sizes of answers that are no streams.",
            ["handler"],
            registry=registry,
        )
        self._duration = Histogram(
            "http_request_duration_seconds",
            "Time from a request's head to the end of its answer.",
            ["handler", "method"],
            buckets=DURATIONS,
            registry=registry,
        )
        self._fine_duration = Histogram(
            "http_request_duration_highr_seconds",
            "The same over all routes, in finer buckets.",
            buckets=FINE_DURATIONS,
            registry=registry,
        )
        self._open = Gauge(
            f"{prefix}:http_requests_open", "HTTP requests that are being answered.", registry=registry
        )
        self.num_open = 0
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        add_inactive(INACTIVE_HTTP, registry, prefix, {})

    def begin(self) -> None:
        """A request has come."""
        self.num_open += 1
        self._open.set(self.num_open)

    def end(self, call: HttpCall) -> None:
        """It was answered, or its client has gone."""
        self.num_open -= 1
        self._open.set(self.num_open)
        method = call.method if call.method in _METHODS else "other"
        self._requests.labels(call.handler, method, f"{call.status // 100}xx").inc()
        self._asked.labels(call.handler).observe(call.request_bytes)
        self._answered.labels(call.handler).observe(call.response_bytes)
        self._duration.labels(call.handler, method).observe(call.seconds)
        self._fine_duration.observe(call.seconds)
