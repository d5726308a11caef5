"""The metrics of several models as one text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric


@dataclass(frozen=True)
class _Families:
    """What `generate_latest` reads of a registry."""

    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def render_together(registries: Iterable[CollectorRegistry]) -> bytes:
    """The exposition text of several registries, which tell their series apart by labels: each family once."""
    families: dict[str, Metric] = {}
    for registry in registries:
        for family in registry.collect():
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples.extend(family.samples)
    return generate_latest(_Families(list(families.values())))
