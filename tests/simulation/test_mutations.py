"""A simulator that never complains proves nothing: bugs are planted, and each must be caught."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.simulator import simulate

MAX_SEEDS = 60
STEPS = 150


def _caught_at(name: str) -> str:
    """Where and how the planted bug shows first; empty if it never does."""
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[name](patch)
        for seed in range(MAX_SEEDS):
            try:
                simulate(seed, STEPS)
            except Exception as error:  # a check that fails, or the broken scheduler itself
                return f"seed {seed}: {error!r}"
    return ""


def test_no_complaint_without_a_bug() -> None:
    for seed in range(8):
        simulate(seed, STEPS)


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bug_is_caught(name: str) -> None:
    assert _caught_at(name), f"{name} went unnoticed for {MAX_SEEDS} seeds of {STEPS} steps"
