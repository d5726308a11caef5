"""Figures out of seconds, and samples that other programs disturb."""

from __future__ import annotations

import random

import pytest
from benchmarks.compare import sampling
from benchmarks.compare.sampling import ANSWER, ATTEMPTS, FIGURES, PREFILL, PROMPT, Samples, take

# Of an imagined machine: seconds a prompt token, seconds a step.
READ, STEP = 0.001, 0.01


def seconds(prompts: list[list[int]], tokens: int) -> float:
    return READ * sum(map(len, prompts)) + STEP * (tokens - 1)


@pytest.mark.parametrize(
    ("figure", "speed"),
    [
        ("prefill", 1 / READ),
        ("decode", 1 / STEP),
        ("clients", 32 * ANSWER / (32 * PROMPT * READ + (ANSWER - 1) * STEP)),
        ("clients16", 16 * ANSWER / (16 * PROMPT * READ + (ANSWER - 1) * STEP)),
    ],
)
def test_figures(figure: str, speed: float) -> None:
    asked: list[int] = []

    def prompt(length: int) -> list[int]:
        asked.append(length)
        return [0] * length

    assert FIGURES[figure](seconds, prompt) == pytest.approx(speed)
    lengths = {
        "prefill": [PREFILL],
        "decode": [PROMPT] * 2,
        "clients": [PROMPT] * 32,
        "clients16": [PROMPT] * 16,
    }
    assert asked == lengths[figure]


class Counter:
    """A peer whose nth sample is n."""

    name, setting = "counter", ""
    count = 0.0

    def speed(self, figure: str, rng: random.Random) -> float:
        self.count += 1
        return self.count

    def close(self) -> None: ...


def sampled(monkeypatch: pytest.MonkeyPatch, foreign: list[float]) -> Samples:
    loads = iter(foreign)
    monkeypatch.setattr(sampling.ForeignLoad, "cores", lambda self: next(loads))
    monkeypatch.setattr(sampling.time, "sleep", lambda seconds: None)
    samples = Samples()
    take(Counter(), "decode", random.Random(0), samples)
    return samples


def test_a_disturbed_sample_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampled(monkeypatch, [0.5, 0.2, 0.1]) == Samples([3.0], 0)


def test_on_a_machine_that_is_always_busy_the_last_one_counts_and_is_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sampled(monkeypatch, [1.0] * ATTEMPTS) == Samples([float(ATTEMPTS)], 1)


def test_foreign_load_is_what_was_used_beyond_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy, own = iter([10.0, 20.0]), iter([100.0, 115.0]), iter([3.0, 8.0])
    monkeypatch.setattr(sampling.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(sampling, "_busy_seconds", lambda: next(busy))
    monkeypatch.setattr(sampling, "_own_seconds", lambda: next(own))
    assert sampling.ForeignLoad().cores() == pytest.approx(1.0)


def test_the_clocks_of_this_machine_can_be_read() -> None:
    assert sampling._busy_seconds() >= sampling._own_seconds() > 0
