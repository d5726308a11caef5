"""What happened to requests, in numbers, for metrics and the periodic log line."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from octavo.lib.origin import Origin
from octavo.types.engine import SchedulerStats
from octavo.types.outputs import RequestMetrics
from octavo.types.sampling_params import SamplingParams

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FinishedRequest:
    """One request (all its n answers) that ended."""

    finish_reasons: tuple[str, ...]
    """`stop`, `length`, `abort` or `error`, one for each answer."""
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generation_tokens: tuple[int, ...]
    """Tokens handed out, one count for each answer."""
    max_tokens: int
    n: int
    metrics: RequestMetrics
    finished_time: float
    """Monotonic seconds."""
    request_id: str = ""
    sampling: SamplingParams | None = None
    origin: Origin | None = None
    """Who asked; None: this process itself."""


@dataclass(kw_only=True)
class StepStats:
    """One step of the engine as its clients saw it."""

    timestamp: float
    scheduler: SchedulerStats | None = None
    num_prompt_tokens: int = 0
    """Of requests whose first token came: once per request, whatever n is."""
    num_cached_tokens: int = 0
    """Of these prompts, what the prefix cache had."""
    num_generation_tokens: int = 0
    """Handed out to clients: what a stop string cut off does not count."""
    times_to_first_token: list[float] = field(default_factory=list)
    inter_token_latencies: list[float] = field(default_factory=list)
    finished: list[FinishedRequest] = field(default_factory=list)


class StatsListener(Protocol):
    """Is told of each step. Called in the event loop; must be quick. What it raises is logged and goes no further."""

    def on_step(self, stats: StepStats) -> None:
        """After a step was handed out, and when requests end without one (aborts, a dead engine)."""


class StatsListeners:
    """Tells several listeners; a broken one must never cost a client its answer, and is written about once."""

    def __init__(self, listeners: Iterable[StatsListener]) -> None:
        self._listeners = list(listeners)
        self._broken: set[int] = set()

    def add(self, listener: StatsListener) -> None:
        """Tell this one too."""
        self._listeners.append(listener)

    def on_step(self, stats: StepStats) -> None:
        """Tell all."""
        for listener in self._listeners:
            try:
                listener.on_step(stats)
            except Exception:
                if id(listener) not in self._broken:
                    self._broken.add(id(listener))
                    logger.exception(
                        "The statistics listener %s failed; it is told further.", type(listener).__name__
                    )


class ThroughputLog:
    """A `StatsListener` that writes a line every `interval` seconds while requests run."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._begin: float | None = None
        self._totals = [0, 0, 0, 0]

    def on_step(self, stats: StepStats) -> None:
        """Count, and write when it is time."""
        scheduler = stats.scheduler
        if scheduler is None:
            return
        now = time.monotonic()
        self._begin = now if self._begin is None else self._begin
        counts = (
            stats.num_prompt_tokens,
            stats.num_generation_tokens,
            scheduler.prefix_queries,
            scheduler.prefix_hits,
        )
        self._totals = [total + count for total, count in zip(self._totals, counts, strict=True)]
        idle = not scheduler.num_running and not scheduler.num_waiting
        if now - self._begin >= self._interval:
            self._write(now - self._begin, scheduler)
        if idle or now - self._begin >= self._interval:
            self._begin, self._totals = None, [0, 0, 0, 0]

    def _write(self, seconds: float, scheduler: SchedulerStats) -> None:
        prompt, generated, queries, hits = self._totals
        logger.info(
            "Prompts %.1f tok/s, answers %.1f tok/s; %d running, %d waiting; cache %.1f%% used, prefix hits %.1f%%.",
            prompt / seconds,
            generated / seconds,
            scheduler.num_running,
            scheduler.num_waiting,
            100 * scheduler.kv_usage,
            100 * hits / queries if queries else 0.0,
        )
