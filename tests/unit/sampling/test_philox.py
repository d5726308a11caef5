"""The random numbers: published vectors, and independence of everything but seed and position."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.sampling.philox import UniformStream, philox4x32

# Known answers of the authors' Random123 library (kat_vectors, philox4x32 with 10 rounds).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_published_vectors(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    other = np.arange(4, dtype=np.uint64)  # a neighbour must not matter
    words = philox4x32(np.stack((np.array(counter, np.uint64), other)), key)
    assert tuple(words[0].tolist()) == expected


def test_a_stream_is_addressed_not_consumed() -> None:
    forward = UniformStream(7)
    expected = [forward.at(index) for index in range(600)]
    backward = UniformStream(7)
    assert [backward.at(index) for index in reversed(range(600))] == expected[::-1]
    assert UniformStream(7).at(599) == expected[599]


def test_streams_are_uniform_and_differ() -> None:
    streams = [UniformStream(seed) for seed in range(32)]
    numbers = np.array([[stream.at(index) for index in range(256)] for stream in streams])
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.015
    histogram = np.histogram(numbers, bins=16, range=(0, 1))[0]
    assert np.abs(histogram - numbers.size / 16).max() < 6 * np.sqrt(numbers.size / 16)
    assert len(np.unique(numbers)) == numbers.size


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**32, 0])
def test_any_64_bit_seed(seed: int) -> None:
    assert 0.0 <= UniformStream(seed).at(0) < 1.0
    assert UniformStream(seed).at(0) != UniformStream(seed ^ (1 << 40)).at(0)


def test_the_largest_word_stays_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "octavo.sampling.philox.philox4x32", lambda counters, key: np.full_like(counters, 0xFFFFFFFF)
    )
    assert UniformStream(0).at(0) == 1.0 - 2.0**-53
