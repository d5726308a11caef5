"""What the engine tells Prometheus: gauges of now, counters that never fall, histograms of finished requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from octavo.metrics.buckets import (
    ITERATION_TOKENS,
    LATENCY,
    N_BUCKETS,
    TIME_TO_FIRST_TOKEN,
    TOKEN_INTERVAL,
    one_two_five,
)
from octavo.metrics.inactive import INACTIVE, add_inactive
from octavo.types.engine import SchedulerStats

_Kind = TypeVar("_Kind", Counter, Gauge)

# `*_created` series double the output and nobody reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")

# name, help. Fed from SchedulerStats by `on_stats`.
GAUGES = (
    ("num_requests_running", "Requests in the batch of the last step."),
    ("num_requests_waiting", "Requests that wait to be scheduled."),
    ("kv_cache_usage_perc", "Share of the key-value pages in use, 0 to 1."),
    ("kv_cache_num_pages", "Key-value pages that there are; 0 before the engine's first step."),
    ("kv_cache_num_shared_pages", "Key-value pages that more than one request refers to."),
)
COUNTERS = (
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
    ("prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    ("num_preemptions", "Preemptions of running requests."),
    ("prompt_tokens", "Prompt tokens processed."),
    ("generation_tokens", "Tokens generated."),
    ("prompt_tokens_cached", "Prompt tokens taken from the prefix cache by requests that started."),
)
SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
"""By level."""
REASONS = ("capacity", "deferred")
SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")


@dataclass(frozen=True, kw_only=True)
class RequestSummary:
    """What is known of a request at its end. Times in seconds; None where that stage was not reached."""

    finish_reasons: tuple[str, ...]
    """One for each of its n answers."""
    num_prompt_tokens: int
    num_generation_tokens: tuple[int, ...]
    """One count for each answer."""
    num_cached_tokens: int
    max_tokens: int | None
    e2e_latency: float
    queue_time: float | None = None
    prefill_time: float | None = None
    decode_time: float | None = None
    inference_time: float | None = None


class EngineMetrics:
    """One engine's metrics in a registry of its own.

    Args:
        model_name: Value of the label `model_name`.
        prefix: Text before the colon: `octavo`, or `vllm` for dashboards made for that.
        max_model_len: Upper end of the token histograms.
        engine: Value of the label `engine`.
    """

    def __init__(
        self, model_name: str, *, prefix: str = "octavo", max_model_len: int = 8192, engine: str = "0"
    ) -> None:
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._labels = {"model_name": model_name, "engine": engine}
        self._gauges = {name: self._gauge(name, text) for name, text in GAUGES}
        self._counters = {name: self._counter(name, text) for name, text in COUNTERS}
        self._success = self._labelled(
            Counter, "request_success", "Requests that ended, by reason.", "finished_reason", FINISH_REASONS
        )
        self._histograms = self._make_histograms(one_two_five(max_model_len))
        self._reasons = self._labelled(
            Gauge, "num_requests_waiting_by_reason", "Requests that wait, by reason.", "reason", REASONS
        )
        self._sleep = self._labelled(
            Gauge, "engine_sleep_state", "1 for the state that the engine is in.", "sleep_state", SLEEP_STATES
        )
        self._sources = self._labelled(
            Counter, "prompt_tokens_by_source", "Prompt tokens processed, by origin.", "source", SOURCES
        )
        self.on_sleep(0)
        add_inactive(INACTIVE, self.registry, prefix, self._labels)

    def render(self) -> bytes:
        """The exposition text of all metrics."""
        return generate_latest(self.registry)

    def set_cache_info(self, info: dict[str, str]) -> None:
        """Publish the page geometry as labels of a gauge that is always 1."""
        names = [*self._labels, *info]
        gauge = Gauge(
            f"{self._prefix}:cache_config_info",
            "Key-value cache configuration.",
            names,
            registry=self.registry,
        )
        gauge.labels(**self._labels, **info).set(1)

    def on_stats(self, stats: SchedulerStats) -> None:
        """One step's gauges and counter increments."""
        self._gauges["num_requests_running"].set(stats.num_running)
        self._gauges["num_requests_waiting"].set(stats.num_waiting)
        self._gauges["kv_cache_usage_perc"].set(stats.kv_usage)
        self._gauges["kv_cache_num_pages"].set(stats.num_pages)
        self._gauges["kv_cache_num_shared_pages"].set(stats.num_shared_pages)
        self._reasons["capacity"].set(stats.num_waiting)
        for name, value in (
            ("prefix_cache_queries", stats.prefix_queries),
            ("prefix_cache_hits", stats.prefix_hits),
            ("num_preemptions", stats.num_preemptions),
        ):
            self._counters[name].inc(value)
        step_tokens = stats.prompt_tokens + stats.generation_tokens
        if step_tokens:
            self._histograms["iteration_tokens_total"].observe(step_tokens)

    def on_tokens(self, *, prompt: int, cached: int, generation: int) -> None:
        """Tokens as clients are billed for them: a prompt once, however often a preemption made it run again."""
        self._counters["prompt_tokens"].inc(prompt)
        self._counters["prompt_tokens_cached"].inc(cached)
        self._sources["local_cache_hit"].inc(cached)
        self._sources["local_compute"].inc(prompt - cached)
        self._counters["generation_tokens"].inc(generation)

    def on_sleep(self, level: int) -> None:
        """How deeply the model sleeps; 0: not at all."""
        for at, state in enumerate(SLEEP_STATES):
            self._sleep[state].set(at == level)

    def on_engine_down(self) -> None:
        """Nothing runs in an engine that is gone."""
        for gauge in (*self._gauges.values(), *self._reasons.values()):
            gauge.set(0)

    def on_first_token(self, seconds_since_arrival: float) -> None:
        self._histograms["time_to_first_token_seconds"].observe(seconds_since_arrival)

    def on_next_token(self, seconds_since_previous: float) -> None:
        self._histograms["inter_token_latency_seconds"].observe(seconds_since_previous)

    def on_finished(self, request: RequestSummary) -> None:
        """Counters and histograms of a request that ended, whatever its reason."""
        for reason in request.finish_reasons:
            self._success[reason].inc()
        observe = self._observe
        observe("request_prompt_tokens", request.num_prompt_tokens)
        for count in request.num_generation_tokens:
            observe("request_generation_tokens", count)
        longest = max(request.num_generation_tokens, default=0)
        observe("request_max_num_generation_tokens", longest)
        observe("request_prefill_kv_computed_tokens", request.num_prompt_tokens - request.num_cached_tokens)
        observe("request_params_n", len(request.num_generation_tokens))
        observe("request_params_max_tokens", request.max_tokens)
        observe("e2e_request_latency_seconds", request.e2e_latency)
        observe("request_queue_time_seconds", request.queue_time)
        observe("request_prefill_time_seconds", request.prefill_time)
        observe("request_decode_time_seconds", request.decode_time)
        observe("request_inference_time_seconds", request.inference_time)
        if request.decode_time is not None and longest > 1:
            observe("request_time_per_output_token_seconds", request.decode_time / (longest - 1))

    def _observe(self, name: str, value: float | None) -> None:
        if value is not None:
            self._histograms[name].observe(value)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{self._prefix}:{name}", text, list(self._labels), registry=self.registry).labels(
            **self._labels
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"{self._prefix}:{name}", text, list(self._labels), registry=self.registry).labels(
            **self._labels
        )

    def _labelled(
        self, kind: type[_Kind], name: str, text: str, label: str, values: tuple[str, ...]
    ) -> dict[str, _Kind]:
        """A child for each value of one more label, all of them there from the start."""
        family = kind(f"{self._prefix}:{name}", text, [*self._labels, label], registry=self.registry)
        return {value: family.labels(**self._labels, **{label: value}) for value in values}

    def _make_histograms(self, token_counts: tuple[float, ...]) -> dict[str, Histogram]:
        rows: list[tuple[str, str, tuple[float, ...]]] = [
            ("iteration_tokens_total", "Tokens of a step.", ITERATION_TOKENS),
            ("time_to_first_token_seconds", "Arrival to first token.", TIME_TO_FIRST_TOKEN),
            ("inter_token_latency_seconds", "Time between two tokens of a request.", TOKEN_INTERVAL),
            ("request_time_per_output_token_seconds", "Mean time a token after the first.", TOKEN_INTERVAL),
            ("request_prompt_tokens", "Prompt tokens of a request.", token_counts),
            ("request_generation_tokens", "Generated tokens of a request.", token_counts),
            (
                "request_max_num_generation_tokens",
                "Largest number of generated tokens of a request.",
                token_counts,
            ),
            ("request_params_max_tokens", "max_tokens asked for.", token_counts),
            (
                "request_prefill_kv_computed_tokens",
                "Prompt tokens computed, cached ones left out.",
                token_counts,
            ),
            ("request_params_n", "n asked for.", N_BUCKETS),
            ("e2e_request_latency_seconds", "Arrival to end.", LATENCY),
            ("request_queue_time_seconds", "Time in the waiting queue.", LATENCY),
            ("request_inference_time_seconds", "First scheduled to last token.", LATENCY),
            ("request_prefill_time_seconds", "First scheduled to first token.", LATENCY),
            ("request_decode_time_seconds", "First to last token.", LATENCY),
        ]
        return {name: self._histogram(name, text, buckets) for name, text, buckets in rows}

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        full_name = f"{self._prefix}:{name}"
        return Histogram(full_name, text, list(self._labels), buckets=buckets, registry=self.registry).labels(
            **self._labels
        )
