"""The scheduler under random load. What is checked after every step stands in `simulator.py` and `fake_executor.py`."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest

from tests.simulation.scenario import random_scenario
from tests.simulation.simulator import simulate

WORKERS = 2


def _run(task: tuple[int, int]) -> Counter[str]:
    seed, num_steps = task
    try:
        simulation = simulate(seed, num_steps)
    except Exception as error:
        error.add_note(f"to repeat: simulate({seed}, {num_steps}); {random_scenario(seed)}")
        raise
    return simulation.seen


def _run_all(first_seed: int, num_seeds: int, num_steps: int) -> Counter[str]:
    """Simulate many seeds in a few processes; returns what happened in all of them together."""
    seen: Counter[str] = Counter()
    tasks = [(seed, num_steps) for seed in range(first_seed, first_seed + num_seeds)]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        for one in pool.imap_unordered(_run, tasks, chunksize=4):
            seen += one
    return seen


def _assert_eventful(seen: Counter[str]) -> None:
    """That nothing was broken means little if nothing happened."""
    rare = {name: count for name, count in seen.items() if count < 30}
    expected = {
        "prefix_hits",
        "num_preemptions",
        "aborts",
        "errors",
        "restarts",
        "overloads",
        "refusals",
        "finished",
        "steps ahead",
    }
    assert expected <= seen.keys()
    assert not rare


def test_a_hundred_thousand_steps() -> None:
    seen = _run_all(0, 100, 1000)
    assert seen["steps"] >= 100_000
    _assert_eventful(seen)


@pytest.mark.slow
def test_a_million_steps() -> None:
    seen = _run_all(10_000, 600, 1700)
    assert seen["steps"] >= 1_000_000
    _assert_eventful(seen)
