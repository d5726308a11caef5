"""One sample at a time, on a machine that does nothing else."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import psutil

PREFILL = 512
PROMPT, ANSWER = 128, 128
CLIENTS = {"clients": 32, "clients16": 16}
"""How many start together, by figure."""
MAX_FOREIGN = 0.1  # cores that others may use during a sample
ATTEMPTS = 12  # until a disturbed sample is taken as it is

Generate = Callable[[list[list[int]], int], float]
"""Seconds from prompts (ids) and a number of tokens."""
Figure = Callable[[Generate, Callable[[int], list[int]]], float]
"""Tokens a second from how to generate and how to make a prompt of a length."""


class Peer(Protocol):
    """Something that can be measured in tokens a second."""

    name: str
    setting: str

    def speed(self, figure: str, rng: random.Random) -> float: ...

    def close(self) -> None: ...


def prefill(generate: Generate, prompt: Callable[[int], list[int]]) -> float:
    return PREFILL / generate([prompt(PREFILL)], 1)


def decode(generate: Generate, prompt: Callable[[int], list[int]]) -> float:
    """Of the tokens after the first, whose time is that of the prompt."""
    first = generate([prompt(PROMPT)], 1)
    return ANSWER / (generate([prompt(PROMPT)], ANSWER + 1) - first)


def clients(count: int) -> Figure:
    """Generated tokens a second over all of `count` prompts, with the time of the prompts."""

    def speed(generate: Generate, prompt: Callable[[int], list[int]]) -> float:
        return count * ANSWER / generate([prompt(PROMPT) for _ in range(count)], ANSWER)

    return speed


FIGURES: dict[str, Figure] = {"prefill": prefill, "decode": decode} | {
    name: clients(count) for name, count in CLIENTS.items()
}
USUAL = ("prefill", "decode", "clients")


@dataclass
class Samples:
    """What was measured of one figure of one peer."""

    values: list[float] = field(default_factory=list)
    disturbed: int = 0


def take(peer: Peer, figure: str, rng: random.Random, samples: Samples) -> None:
    """Add one sample, the first that nobody disturbed."""
    for attempt in range(ATTEMPTS):
        foreign = ForeignLoad()
        speed = peer.speed(figure, rng)
        quiet = foreign.cores() <= MAX_FOREIGN
        if quiet:
            break
        time.sleep(min(attempt, 5))
    samples.values.append(speed)
    samples.disturbed += not quiet


class ForeignLoad:
    """How many cores other programs, or other machines on the same host, used since this was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def cores(self) -> float:
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return others / (time.perf_counter() - self._start)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(
        sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
    )


def _own_seconds() -> float:
    """Of this process, its descendants, and those of them that ended and were waited for."""
    parent = psutil.Process()
    total = 0.0
    for process in [parent, *parent.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
