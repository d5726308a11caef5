"""How many decode steps fit into a moment."""

from __future__ import annotations

import pytest

from octavo.engine.decode_pace import MOMENT, DecodePace


@pytest.mark.parametrize(
    ("seconds", "steps"), [(MOMENT / 100, 8), (MOMENT / 5.5, 5), (MOMENT, 1), (1.0, 1), (0.0, 8)]
)
def test_as_many_as_fit(seconds: float, steps: int) -> None:
    pace = DecodePace(8)
    assert pace.steps == 1  # nothing is known yet
    pace.note(seconds)
    assert pace.steps == steps


def test_never_more_than_allowed() -> None:
    pace = DecodePace(1)
    pace.note(MOMENT / 100)
    assert pace.steps == 1
