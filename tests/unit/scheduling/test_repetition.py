"""Loops are found at the very token that completes them, as the definition says."""

from __future__ import annotations

import random

import pytest

from octavo.lib.errors import InvalidRequestError
from octavo.scheduling.repetition import RepetitionWatch
from octavo.types.sampling_params import RepetitionDetectionParams


def repeats(tokens: list[int], params: RepetitionDetectionParams) -> bool:
    """The definition: the end is `min_count` copies of one pattern of a size that is looked for."""
    for size in range(max(1, params.min_pattern_size), params.max_pattern_size + 1):
        end = tokens[-size * params.min_count :]
        if len(end) == size * params.min_count and end == end[:size] * params.min_count:
            return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_found_where_the_definition_finds_it(seed: int) -> None:
    rng = random.Random(seed)
    longest = rng.randint(1, 5)
    params = RepetitionDetectionParams(
        max_pattern_size=longest, min_pattern_size=rng.randint(0, longest), min_count=rng.randint(2, 4)
    )
    tokens: list[int] = []
    watch = RepetitionWatch.of(params)
    for _ in range(200):
        tokens.append(rng.randrange(2))
        found = watch.caught(tokens[-1])
        assert found == repeats(tokens, params)
        if rng.random() < 0.05:  # a preempted answer goes on elsewhere
            watch = RepetitionWatch.of(params, tokens)


def test_nobody_asked_nothing_is_kept() -> None:
    watch = RepetitionWatch.of(None)
    assert not any(watch.caught(1) for _ in range(1000))


@pytest.mark.parametrize(
    "values",
    [
        {"max_pattern_size": -1},
        {"max_pattern_size": 513, "min_count": 2},
        {"max_pattern_size": 3, "min_pattern_size": 4, "min_count": 2},
        {"max_pattern_size": 3, "min_count": 1},
        {"max_pattern_size": 3},
        {"max_pattern_size": 3, "min_count": 1 << 17},
        {"max_pattern_size": 2.5, "min_count": 2},
        {"max_pattern_size": True, "min_count": 2},
    ],
)
def test_sizes_and_counts_have_limits(values: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        RepetitionDetectionParams(**values)
    assert caught.value.param == "repetition_detection"
