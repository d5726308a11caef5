"""Every format: its corpus whole, by characters and at every cut gives the same events (Done-when 3)."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator

import pytest
from tests.unit.entrypoints.parsers.corpus import CASES, TOOLS, Case

from octavo.entrypoints.parsers.events import Event, collect, merged
from octavo.entrypoints.parsers.machine import Machine
from octavo.entrypoints.parsers.registry import builtin_formats

FORMATS = {name: one for one in builtin_formats() for name in one.names}


def events(case: Case, pieces: list[str]) -> list[Event]:
    ids: Iterator[int] = itertools.count()
    one = FORMATS[case.format]
    machine = Machine(
        one.tools,
        one.reasoning,
        in_reasoning=case.in_reasoning,
        schemas=TOOLS,
        new_id=lambda: f"call_{next(ids)}",
    )
    found = [event for piece in pieces for event in machine.feed(piece)]
    return merged(found + machine.finish())


def loads(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_a_format_says_what_its_corpus_says(case: Case) -> None:
    parsed = collect(events(case, [case.text]))
    assert parsed.content == case.content
    assert parsed.reasoning == case.reasoning
    assert [(call.name, loads(call.arguments)) for call in parsed.tool_calls] == case.calls


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_cuts_change_nothing(case: Case) -> None:
    whole = events(case, [case.text])
    assert events(case, list(case.text)) == whole
    for cut in range(1, len(case.text)):
        assert events(case, [case.text[:cut], case.text[cut:]]) == whole, cut


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_pairs_of_cuts_change_nothing(case: Case) -> None:
    whole = events(case, [case.text])
    for first, last in itertools.combinations(range(1, len(case.text)), 2):
        pieces = [case.text[:first], case.text[first:last], case.text[last:]]
        assert events(case, pieces) == whole, (first, last)


def test_every_format_has_a_corpus() -> None:
    assert {one.names[0] for one in FORMATS.values()} == {case.format for case in CASES}


def fuzzed(seed: int) -> Case:
    """A corpus answer, spoiled: pieces of several answers in a random order, with characters changed."""
    rng = random.Random(seed)
    case = rng.choice(CASES)
    text = "".join(
        rng.choice([case, case, rng.choice(CASES)]).text[rng.randrange(40) :][: rng.randrange(1, 80)]
        for _ in range(rng.randrange(1, 5))
    )
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        text = (
            text[:at]
            + rng.choice(["", '"', "{", "}", "]", "\\", "<", "\n", "é", "'", "(", case.text[:9]])
            + text[at + 1 :]
        )
    return Case(case.format, text, in_reasoning=rng.random() < 0.3)


def fuzz(seeds: range) -> float:
    """Run them; the longest step in seconds of processor time."""
    longest = 0.0
    for seed in seeds:
        case = fuzzed(seed)
        begin = time.thread_time()
        whole = events(case, [case.text])
        longest = max(longest, time.thread_time() - begin)
        cut = seed % (len(case.text) + 1)
        assert events(case, [case.text[:cut], case.text[cut:]]) == whole, seed
    return longest


def test_fuzzed_answers_never_raise_and_cuts_change_nothing() -> None:
    fuzz(range(3_000))


@pytest.mark.slow
def test_a_million_fuzzed_answers() -> None:
    print(f"longest answer: {fuzz(range(1_000_000)) * 1000:.2f} ms")
