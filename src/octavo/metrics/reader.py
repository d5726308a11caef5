"""Metrics as values, for scripts. The types are those of vLLM's `LLM.get_metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample


@dataclass(frozen=True)
class Metric:
    """One series: a name and its labels."""

    name: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Counter(Metric):
    """A count that never falls. Its name is without the `_total` that `/metrics` shows."""

    value: int


@dataclass(frozen=True)
class Gauge(Metric):
    """A value of now."""

    value: float


@dataclass(frozen=True)
class Histogram(Metric):
    """How many observations lie at or below each bound."""

    count: int
    sum: float
    buckets: dict[str, int]
    """Cumulative counts by upper bound, `+Inf` last."""


def read_metrics(registry: CollectorRegistry) -> list[Metric]:
    """All series of a registry, in its order."""
    return [metric for family in registry.collect() for metric in _series(family)]


def _series(family: Family) -> Iterator[Metric]:
    for labels, samples in _by_labels(family.samples):
        values = {sample.name.removeprefix(family.name): sample.value for sample in samples}
        if family.type == "counter":
            yield Counter(family.name, labels, int(values["_total"]))
        elif family.type == "gauge":
            yield Gauge(family.name, labels, values[""])
        elif family.type == "histogram":
            buckets = {s.labels["le"]: int(s.value) for s in samples if "le" in s.labels}
            yield Histogram(family.name, labels, int(values["_count"]), values["_sum"], buckets)


def _by_labels(samples: Iterable[Sample]) -> list[tuple[dict[str, str], list[Sample]]]:
    """Samples that differ in their bucket only belong together."""
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        key = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        groups.setdefault(key, []).append(sample)
    return [(dict(key), group) for key, group in groups.items()]
