"""Frequencies against `transformers`, and tables that fill as positions are reached."""

from __future__ import annotations

import math

import pytest
import torch

from octavo.layers.parts import FrequencyFactors, LinearScaling, Llama3Scaling, LongRope, NoScaling, Rope
from octavo.layers.rope import RopeTable, frequencies
from octavo.lib.errors import InvalidRequestError

FACTORS = tuple(1.0 + index / 8 for index in range(8))


def test_frequencies_are_powers() -> None:
    found, magnitude = frequencies(Rope(10000.0, 16), 64)
    expected = torch.tensor([10000.0 ** (-index / 8) for index in range(8)])
    assert magnitude == 1.0
    assert torch.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (NoScaling(), [1.0] * 8),
        (LinearScaling(4.0), [4.0] * 8),
        (FrequencyFactors(FACTORS), list(FACTORS)),
        (LongRope(FACTORS, (9.0,) * 8, 128, 1.1), list(FACTORS)),
        (LongRope((9.0,) * 8, FACTORS, 32, 1.1), list(FACTORS)),
    ],
)
def test_divisors(scaling: object, expected: list[float]) -> None:
    """How much each frequency is slowed. LongRoPE chooses its set by the longest position, here 64."""
    plain, _ = frequencies(Rope(10000.0, 16), 64)
    scaled, magnitude = frequencies(Rope(10000.0, 16, scaling), 64)  # type: ignore[arg-type]
    assert torch.allclose(plain / scaled, torch.tensor(expected), rtol=1e-6)
    assert magnitude == (1.1 if isinstance(scaling, LongRope) else 1.0)


def test_llama3_keeps_high_and_slows_low_frequencies() -> None:
    plain, _ = frequencies(Rope(500000.0, 128), 1024)
    scaled, _ = frequencies(Rope(500000.0, 128, Llama3Scaling(8.0, 1.0, 4.0, 8192)), 1024)
    divisor = plain / scaled
    wavelength = 2 * math.pi / plain
    assert torch.equal(divisor[wavelength < 8192 / 4], torch.ones(int((wavelength < 2048).sum())))
    assert torch.allclose(divisor[wavelength > 8192], torch.tensor(8.0))
    between = divisor[(wavelength >= 2048) & (wavelength <= 8192)]
    assert len(between) > 3
    assert torch.all(between.diff() > 0)
    assert 1 < between[0] < between[-1] < 8


def test_rows_have_the_same_bits_however_the_table_grew() -> None:
    rope = Rope(10000.0, 32)
    grown, whole = RopeTable(rope, 4000), RopeTable(rope, 4000)
    for last in (0, 5, 1023, 1024, 3999):
        grown.reach(last)
    whole.reach(3999)
    assert torch.equal(grown.cos_sin, whole.cos_sin)
    angle = 1700 * float(frequencies(rope, 1)[0][3])
    assert abs(float(whole.cos_sin[1700, 3]) - math.cos(angle)) < 1e-4
    assert abs(float(whole.cos_sin[1700, 16 + 3]) - math.sin(angle)) < 1e-4


def test_a_position_beyond_the_model_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="position 64 is beyond the model's 64 positions"):
        RopeTable(Rope(10000.0, 16), 64).reach(64)
