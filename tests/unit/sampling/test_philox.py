"""The random numbers: published vectors, and independence of everything but seed and position."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from octavo.sampling.philox import CHUNK, UniformTable, philox4x32

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
    words = philox4x32(np.stack((np.array(counter, np.uint64), other)), np.array(key, np.uint64))
    assert tuple(words[0].tolist()) == expected


def test_a_key_for_each_counter() -> None:
    counters, keys, expected = (np.array(column, np.uint64) for column in zip(*KNOWN, strict=True))
    assert philox4x32(counters, keys).tolist() == expected.tolist()


def numbers_of(*seeds: int, indices: Iterable[int]) -> list[list[float]]:
    """Of each index, the numbers of all seeds, which lie in one table."""
    table = UniformTable(len(seeds))
    for slot, seed in enumerate(seeds):
        table.set_seed(slot, seed)
    slots = np.arange(len(seeds))
    return [table.at(slots, np.full(len(seeds), index)).tolist() for index in indices]


def test_pinned() -> None:
    """Answers to a seed stay what they are from version to version."""
    assert numbers_of(7, -3, indices=[0, 1, 300]) == [
        [0.9545971261687, 0.8735695144932322],
        [0.11417736161631942, 0.5339848558014042],
        [0.023814653932272223, 0.11363088148741585],
    ]


def test_a_stream_is_addressed_not_consumed() -> None:
    expected = numbers_of(7, indices=range(600))
    assert numbers_of(7, indices=reversed(range(600))) == expected[::-1]
    assert numbers_of(7, indices=[599]) == expected[599:]


def test_neighbours_at_other_tokens_change_nothing() -> None:
    table = UniformTable(3)
    seeds, slots = (5, 6, 7), np.array([2, 0, 1])
    for slot, seed in zip(slots.tolist(), seeds, strict=True):
        table.set_seed(slot, seed)
    starts = np.array([0, CHUNK - 2, 3 * CHUNK + 5])
    for step in range(5):
        alone = [
            numbers_of(seed, indices=[start + step])[0][0] for seed, start in zip(seeds, starts, strict=True)
        ]
        assert table.at(slots, starts + step).tolist() == alone


def test_a_slot_begins_again_with_its_next_seed() -> None:
    table, slots, indices = UniformTable(1), np.array([0]), np.array([3])
    table.set_seed(0, 1)
    before = table.at(slots, indices).tolist()
    table.set_seed(0, 2)
    assert [table.at(slots, indices).tolist()] == numbers_of(2, indices=[3]) != [before]


def test_streams_are_uniform_and_differ() -> None:
    numbers = np.array(numbers_of(*range(32), indices=range(256)))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.015
    histogram = np.histogram(numbers, bins=16, range=(0, 1))[0]
    assert np.abs(histogram - numbers.size / 16).max() < 6 * np.sqrt(numbers.size / 16)
    assert len(np.unique(numbers)) == numbers.size


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**32, 0])
def test_any_64_bit_seed(seed: int) -> None:
    [[number, other]] = numbers_of(seed, seed ^ (1 << 40), indices=[0])
    assert 0.0 <= number < 1.0
    assert number != other


def test_the_largest_word_stays_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "octavo.sampling.philox.philox4x32", lambda counters, keys: np.full_like(counters, 0xFFFFFFFF)
    )
    assert numbers_of(0, indices=[0]) == [[1.0 - 2.0**-53]]
