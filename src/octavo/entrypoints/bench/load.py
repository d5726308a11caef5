"""Open-loop load: requests go out when their time has come, whether or not earlier ones were answered."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from octavo.engine.flags import flag
from octavo.entrypoints.bench.arguments import refuse
from octavo.entrypoints.bench.datasets import Sample
from octavo.entrypoints.bench.outcome import Outcome

Send = Callable[[Sample], Awaitable[Outcome]]
Clock = Callable[[], float]


@dataclass(kw_only=True)
class LoadArgs:
    """When requests go out."""

    request_rate: float = math.inf
    """Requests a second; inf: all at once."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps: 1 is Poisson, less comes in bursts, more is more even."""
    max_concurrency: int | None = None
    """Most requests that are open at a time; further ones wait in the client, and their clocks do not run."""
    ramp_up_strategy: str | None = flag(None, choices=("linear", "exponential"))
    """How the rate grows from --ramp-up-start-rps to --ramp-up-end-rps over the requests."""
    ramp_up_start_rps: float | None = None
    """Requests a second at the first request."""
    ramp_up_end_rps: float | None = None
    """Requests a second at the last one."""

    def check(self) -> None:
        """Refuse rates that mean nothing and flags that contradict each other.

        Raises:
            ConfigError: names the flag.
        """
        for field in ("request_rate", "burstiness"):
            if not getattr(self, field) > 0:
                raise refuse(field, f"must be greater than 0, got {getattr(self, field)}")
        if math.isinf(self.burstiness):
            raise refuse("burstiness", "must be a finite number")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise refuse("max_concurrency", f"must be at least 1, got {self.max_concurrency}")
        self._check_ramp()

    def _check_ramp(self) -> None:
        ends = {"ramp_up_start_rps": self.ramp_up_start_rps, "ramp_up_end_rps": self.ramp_up_end_rps}
        for field, rate in ends.items():
            if self.ramp_up_strategy is None and rate is not None:
                raise refuse(field, "needs --ramp-up-strategy")
            if self.ramp_up_strategy is not None and (rate is None or not 0 < rate < math.inf):
                raise refuse(field, f"must be greater than 0 with --ramp-up-strategy, got {rate}")
        if self.ramp_up_strategy is not None and not math.isinf(self.request_rate):
            raise refuse("request_rate", "and --ramp-up-strategy contradict each other; give one")

    def rates(self, count: int) -> list[float]:
        """Requests a second that hold before each of `count` requests."""
        if self.ramp_up_strategy is None:
            return [self.request_rate] * count
        assert self.ramp_up_start_rps is not None
        assert self.ramp_up_end_rps is not None
        start, end = self.ramp_up_start_rps, self.ramp_up_end_rps
        parts = [index / max(count - 1, 1) for index in range(count)]
        if self.ramp_up_strategy == "linear":
            return [start + (end - start) * part for part in parts]
        return [start * (end / start) ** part for part in parts]


def gaps(rates: Sequence[float], burstiness: float, rng: random.Random) -> list[float]:
    """Seconds before each request, drawn from gamma distributions of mean 1 / rate; 0 at an infinite rate."""
    return [
        0.0 if math.isinf(rate) else rng.gammavariate(burstiness, 1 / (rate * burstiness)) for rate in rates
    ]


def arrival_times(args: LoadArgs, count: int, seed: int) -> list[float]:
    """Seconds after the start at which each request goes out, ascending; the first one at 0.

    At a constant rate the whole is stretched so that the last one goes out at (count - 1) / rate: a short run then has
    the rate that was asked for too.
    """
    drawn = gaps(args.rates(count), args.burstiness, random.Random(seed))
    times, now = [], 0.0
    for index, gap in enumerate(drawn):
        now += gap if index else 0.0
        times.append(now)
    if args.ramp_up_strategy is None and now > 0:
        stretch = (count - 1) / args.request_rate / now
        times = [moment * stretch for moment in times]
    return times


async def run_load(
    samples: Sequence[Sample],
    times: Sequence[float],
    send: Send,
    *,
    clock: Clock,
    max_concurrency: int | None = None,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Send each sample at its time; outcomes in the order of the samples.

    Args:
        samples: What to ask.
        times: Seconds after now, ascending.
        send: Asks and measures.
        clock: Seconds; must advance with `asyncio.sleep`.
        max_concurrency: See `LoadArgs`.
        on_done: Told of each outcome as it comes.
    """
    gate = nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)

    async def ask(sample: Sample) -> Outcome:
        async with gate:
            outcome = await send(sample)
        on_done(outcome)
        return outcome

    start = clock()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for sample, moment in zip(samples, times, strict=True):
            if (wait := start + moment - clock()) > 0:
                await asyncio.sleep(wait)
            tasks.append(group.create_task(ask(sample)))
    return [task.result() for task in tasks]
