"""From what the engine tells its listeners to Prometheus."""

from __future__ import annotations

from dataclasses import asdict

from octavo.config import OctavoConfig
from octavo.engine.stats import FinishedRequest, StepStats
from octavo.metrics import EngineMetrics, RequestSummary


def metrics_of(config: OctavoConfig) -> EngineMetrics:
    """The metrics of an engine, all of them zero."""
    metrics = EngineMetrics(
        config.model.served_model_names[0],
        prefix=config.observability.metrics_prefix,
        max_model_len=config.model.max_model_len,
    )
    metrics.set_cache_info({name: str(value) for name, value in asdict(config.cache).items()})
    return metrics


class MetricsListener:
    """A `StatsListener` that feeds an `EngineMetrics`."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics

    def on_step(self, stats: StepStats) -> None:
        """Gauges, counters and histograms of one step."""
        metrics = self._metrics
        if stats.scheduler is not None:
            metrics.on_stats(stats.scheduler)
        metrics.on_tokens(
            prompt=stats.num_prompt_tokens,
            cached=stats.num_cached_tokens,
            generation=stats.num_generation_tokens,
        )
        for seconds in stats.times_to_first_token:
            metrics.on_first_token(seconds)
        for seconds in stats.inter_token_latencies:
            metrics.on_next_token(seconds)
        for finished in stats.finished:
            metrics.on_finished(_summary(finished))


def _summary(request: FinishedRequest) -> RequestSummary:
    times = request.metrics
    return RequestSummary(
        finish_reasons=request.finish_reasons,
        num_prompt_tokens=request.num_prompt_tokens,
        num_generation_tokens=request.num_generation_tokens,
        num_cached_tokens=request.num_cached_tokens,
        max_tokens=request.max_tokens,
        e2e_latency=request.finished_time - times.arrival_time,
        queue_time=_between(times.queued_time, times.scheduled_time),
        prefill_time=_between(times.scheduled_time, times.first_token_time),
        decode_time=_between(times.first_token_time, times.last_token_time),
        inference_time=_between(times.scheduled_time, times.last_token_time),
    )


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds from one point to another; None if either was not reached."""
    return None if start is None or end is None else max(0.0, end - start)
