"""OpenTelemetry traces (extra `otel`): a span for each request of the engine, inside the trace of the call that it came of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from octavo.engine.stats import FinishedRequest, StepStats
from octavo.lib.errors import ConfigError
from octavo.lib.origin import Origin

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor

SPAN = "llm_request"
_NANOSECONDS = 1_000_000_000


class Traces:
    """A `StatsListener` that makes a span of each request that ended. Its names are vLLM's and OpenTelemetry's.

    Args:
        processor: Hands finished spans on, without blocking.
    """

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        provider = TracerProvider(resource=Resource.create({"service.name": "octavo"}))
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("octavo")

    def on_step(self, stats: StepStats) -> None:
        """See `StatsListener.on_step`."""
        for request in stats.finished:
            # The engine's clock is monotonic, that of traces is the world's.
            shift = time.time() - time.monotonic()
            span = self._tracer.start_span(
                SPAN,
                context=_context(request.origin),
                attributes=_attributes(request),
                start_time=int((request.metrics.arrival_time + shift) * _NANOSECONDS),
            )
            span.end(int((request.finished_time + shift) * _NANOSECONDS))


def traces_to(endpoint: str) -> Traces:
    """Traces that are sent to an OTLP collector over HTTP, by a thread of its own.

    Raises:
        ConfigError: the packages are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "--otlp-traces-endpoint needs the packages of the extra: pip install octavo[otel]",
            param="otlp_traces_endpoint",
        ) from error
    return Traces(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))


def _context(origin: Origin | None) -> Context | None:
    """Below the client's span; without one, in the trace whose id the client was told."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if origin is None or not origin.trace_id:
        return None
    recorded = origin.sampled or not origin.parent_span_id
    parent = SpanContext(
        trace_id=int(origin.trace_id, 16),
        span_id=int(origin.parent_span_id or origin.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if recorded else TraceFlags.DEFAULT),
    )
    return set_span_in_context(NonRecordingSpan(parent))


def _attributes(request: FinishedRequest) -> dict[str, str | int | float]:
    times, sampling = request.metrics, request.sampling
    stages = {
        "e2e": request.finished_time - times.arrival_time,
        "time_to_first_token": _between(times.arrival_time, times.first_token_time),
        "time_in_queue": _between(times.queued_time, times.scheduled_time),
        "time_in_model_prefill": _between(times.scheduled_time, times.first_token_time),
        "time_in_model_decode": _between(times.first_token_time, times.last_token_time),
        "time_in_model_inference": _between(times.scheduled_time, times.last_token_time),
    }
    found: dict[str, str | int | float | None] = {
        "gen_ai.request.id": request.request_id,
        "gen_ai.request.n": request.n,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": sampling.temperature if sampling else None,
        "gen_ai.request.top_p": sampling.top_p if sampling else None,
        "gen_ai.usage.prompt_tokens": request.num_prompt_tokens,
        "gen_ai.usage.completion_tokens": sum(request.num_generation_tokens),
        **{f"gen_ai.latency.{name}": seconds for name, seconds in stages.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds from one point to another; None if either was not reached."""
    return None if start is None or end is None else max(0.0, end - start)
