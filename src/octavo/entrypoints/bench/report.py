"""Percentiles, the report of a load as a table, and as the JSON that `vllm bench serve` writes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from octavo.entrypoints.bench.outcome import Outcome

WIDTH = 50
# Key in flags and files, name in tables, what it is.
METRICS = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
}
# An objective can be set for what one request has one of.
OBJECTIVES = ("ttft", "tpot", "e2el")


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks, as numpy's default; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def percent_name(percent: float) -> str:
    """`p99` or `p99.9`."""
    return f"p{percent:g}"


@dataclass(frozen=True)
class Spread:
    """A distribution, in milliseconds."""

    mean: float
    median: float
    std: float
    percentiles: Mapping[float, float]

    @classmethod
    def of(cls, seconds: Sequence[float], percents: Sequence[float]) -> Spread:
        milliseconds = [value * 1e3 for value in seconds]
        return cls(
            statistics.fmean(milliseconds) if milliseconds else 0.0,
            percentile(milliseconds, 50),
            statistics.pstdev(milliseconds) if milliseconds else 0.0,
            {percent: percentile(milliseconds, percent) for percent in percents},
        )

    def to_json(self, key: str) -> dict[str, float]:
        named = {"mean": self.mean, "median": self.median, "std": self.std}
        named |= {percent_name(percent): value for percent, value in self.percentiles.items()}
        return {f"{name}_{key}_ms": value for name, value in named.items()}


@dataclass(frozen=True)
class LoadReport:
    """The figures of one load. Failed requests count in `failed` and nowhere else."""

    completed: int
    failed: int
    duration: float
    total_input_tokens: int
    total_output_tokens: int
    request_goodput: float | None
    """Requests a second that met every objective; None without objectives."""
    max_output_tokens_per_s: float
    """In the best second, counted from the first request."""
    max_concurrent_requests: int
    spreads: Mapping[str, Spread]

    @classmethod
    def of(
        cls,
        outcomes: Sequence[Outcome],
        duration: float,
        percents: Sequence[float],
        objectives: Mapping[str, float] | None = None,
    ) -> LoadReport:
        """
        Args:
            outcomes: Of all requests.
            duration: Seconds from the first request's start to the last one's end.
            percents: Which percentiles to give.
            objectives: Milliseconds that a request must not exceed, by metric.
        """
        good = [outcome for outcome in outcomes if not outcome.error]
        return cls(
            completed=len(good),
            failed=len(outcomes) - len(good),
            duration=duration,
            total_input_tokens=sum(outcome.prompt_len for outcome in good),
            total_output_tokens=sum(outcome.output_len for outcome in good),
            request_goodput=_met(good, objectives) / duration if objectives else None,
            max_output_tokens_per_s=_best_second(good),
            max_concurrent_requests=_most_at_once(good),
            spreads={name: Spread.of(values, percents) for name, values in _by_metric(good).items()},
        )

    @property
    def request_throughput(self) -> float:
        return self.completed / self.duration

    @property
    def output_throughput(self) -> float:
        return self.total_output_tokens / self.duration

    @property
    def total_token_throughput(self) -> float:
        return (self.total_input_tokens + self.total_output_tokens) / self.duration

    def to_json(self, metrics: Sequence[str]) -> dict[str, Any]:
        """The figures under vLLM's keys."""
        figures: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
                "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
                "max_concurrent_requests",
            )
        }  # fmt: skip
        for name in metrics:
            figures |= self.spreads[name].to_json(name)
        return figures

    def lines(self, metrics: Sequence[str], settings: Mapping[str, float | int | None]) -> list[str]:
        """The report as a table.

        Args:
            metrics: Of `METRICS`, in order.
            settings: Further rows after the counts; None is left out.
        """
        rows: dict[str, float | int | None] = {
            "Successful requests:": self.completed,
            "Failed requests:": self.failed,
            **settings,
            "Benchmark duration (s):": self.duration,
            "Total input tokens:": self.total_input_tokens,
            "Total generated tokens:": self.total_output_tokens,
            "Request throughput (req/s):": self.request_throughput,
            "Request goodput (req/s):": self.request_goodput,
            "Output token throughput (tok/s):": self.output_throughput,
            "Peak output token throughput (tok/s):": self.max_output_tokens_per_s,
            "Peak concurrent requests:": self.max_concurrent_requests,
            "Total token throughput (tok/s):": self.total_token_throughput,
        }
        lines = [" Serving Benchmark Result ".center(WIDTH, "=")]
        lines += [row(name, value) for name, value in rows.items() if value is not None]
        for name in metrics:
            lines += _section(name, self.spreads[name])
        return [*lines, "=" * WIDTH]


def row(name: str, value: float | int) -> str:
    """One line of a table."""
    return f"{name:<40} {value if isinstance(value, int) else format(value, '.2f'):<10}".rstrip()


def _section(name: str, spread: Spread) -> list[str]:
    short, long = METRICS[name]
    values = {"Mean": spread.mean, "Median": spread.median}
    values |= {percent_name(percent).upper(): value for percent, value in spread.percentiles.items()}
    return [long.center(WIDTH, "-"), *(row(f"{key} {short} (ms):", value) for key, value in values.items())]


def _by_metric(good: Sequence[Outcome]) -> dict[str, list[float]]:
    return {
        "ttft": [outcome.ttft for outcome in good],
        "tpot": [outcome.tpot for outcome in good if outcome.tpot is not None],
        "itl": [gap for outcome in good for gap in outcome.itls],
        "e2el": [outcome.e2el for outcome in good],
    }


def _met(good: Sequence[Outcome], objectives: Mapping[str, float]) -> int:
    return sum(
        all((getattr(outcome, name) or 0.0) * 1e3 <= limit for name, limit in objectives.items())
        for outcome in good
    )


def _best_second(good: Sequence[Outcome]) -> float:
    """A piece of an answer counts as its share of the answer's tokens."""
    if not good:
        return 0.0
    start = min(outcome.started for outcome in good)
    seconds: dict[int, float] = {}
    for outcome in good:
        weight = outcome.output_len / len(outcome.piece_times)
        for moment in outcome.piece_times:
            second = int(moment - start)
            seconds[second] = seconds.get(second, 0.0) + weight
    return max(seconds.values())


def _most_at_once(good: Sequence[Outcome]) -> int:
    ends = [(outcome.piece_times[-1], -1) for outcome in good]
    changes = sorted([*ends, *((outcome.started, 1) for outcome in good)])
    return max(accumulate(change for _, change in changes), default=0)
