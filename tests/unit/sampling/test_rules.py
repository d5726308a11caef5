"""Rules that follow from the tokens so far, against the plain statement of what they mean."""

from __future__ import annotations

import random

import pytest

from octavo.sampling.rules import BadWords, ThinkingBudget

VOCAB = 50


def ends_with(tokens: list[int], end: list[int]) -> bool:
    return len(tokens) >= len(end) and tokens[len(tokens) - len(end) :] == end


@pytest.mark.parametrize("seed", range(20))
def test_a_word_is_banned_where_its_beginning_stands(seed: int) -> None:
    rng = random.Random(seed)
    words = [[rng.randrange(3) for _ in range(rng.randint(1, 4))] for _ in range(5)]
    output = [rng.randrange(3) for _ in range(60)]
    grown = BadWords(words, [], VOCAB)
    for length in range(len(output)):
        expected = {word[-1] for word in words if ends_with(output[:length], word[:-1])}
        assert set(grown.banned().tolist()) == expected
        assert set(BadWords(words, output[:length], VOCAB).banned().tolist()) == expected
        grown.extend(output[length : length + 1])


def test_words_that_the_head_cannot_say_are_no_matter() -> None:
    rule = BadWords([[VOCAB], [3, VOCAB + 1], [VOCAB + 1, 3], [4]], [3], VOCAB)
    assert rule.banned().tolist() == [4]


START, END = [1, 2], [3, 4, 5]


def spend(rule: ThinkingBudget, wanted: list[int]) -> list[int]:
    """What is said by somebody who wants to say `wanted`, and says what is forced."""
    said = []
    for token in wanted:
        said.append(token if rule.forced is None else rule.forced)
        rule.extend(said[-1:])
    return said


def test_reasoning_ends_when_its_tokens_are_spent() -> None:
    rule = ThinkingBudget(4, START, END, prompt=[9])
    assert spend(rule, [1, 2, 9, 9, 9, 9, 9, 9, 9, 9]) == [1, 2, 9, 9, 9, 9, 3, 4, 5, 9]


def test_reasoning_that_the_prompt_began_counts() -> None:
    rule = ThinkingBudget(4, START, END, prompt=[9, 1, 2, 8, 8])
    assert spend(rule, [9] * 6) == [9, 9, 3, 4, 5, 9]


def test_reasoning_that_the_prompt_ended_does_not() -> None:
    rule = ThinkingBudget(4, START, END, prompt=[1, 2, 8, 8, 8, 8, 8, 3, 4, 5])
    assert spend(rule, [9, 1, 2, 9, 9, 9, 9, 9]) == [9, 1, 2, 9, 9, 9, 9, 3]


def test_no_budget_ends_it_at_once() -> None:
    assert spend(ThinkingBudget(0, START, END, prompt=[1, 2]), [9] * 4) == [3, 4, 5, 9]


def test_an_end_that_has_begun_is_finished_not_begun_again() -> None:
    rule = ThinkingBudget(3, START, END, prompt=[1, 2])
    assert spend(rule, [9, 9, 3, 9, 9, 9]) == [9, 9, 3, 9, 3, 4]
    rule = ThinkingBudget(2, START, END, prompt=[1, 2])
    assert spend(rule, [9, 3, 9, 9, 9, 9]) == [9, 3, 9, 3, 4, 5]
    rule = ThinkingBudget(1, START, END, prompt=[1, 2])
    assert spend(rule, [9, 9, 9, 9, 9]) == [9, 3, 4, 5, 9]


def test_later_reasoning_has_what_is_left() -> None:
    rule = ThinkingBudget(6, START, END, prompt=[])
    said = spend(rule, [1, 2, 9, 9, 3, 4, 5, 7, 1, 2, 9, 9, 9, 9, 9])
    first, later = said[:8], said[8:]
    assert first == [1, 2, 9, 9, 3, 4, 5, 7]
    assert later == [1, 2, 9, 3, 4, 5, 9]  # the two of the first, and the three of its end, are spent


@pytest.mark.parametrize("cut", range(14))
def test_a_preempted_answer_goes_on_as_before(cut: int) -> None:
    wanted = [1, 2, 9, 9, 3, 9, 9, 9, 9, 9, 7, 1, 2, 9]
    whole = spend(ThinkingBudget(5, START, END, prompt=[8]), wanted)
    resumed = ThinkingBudget(5, START, END, prompt=[8], output=whole[:cut])
    assert whole[:cut] + spend(resumed, wanted[cut:]) == whole


def test_marks_of_one_token() -> None:
    assert spend(ThinkingBudget(2, [1], [2], prompt=[]), [1, 9, 9, 9, 9]) == [1, 9, 9, 2, 9]
