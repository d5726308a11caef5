"""Reasoning is free, what comes after it is not, and both can be taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from tests.engine.structured_vocabulary import END_THINK, EOS, SIZE, THINK, vocabulary

from octavo.config import StructuredOutputsConfig
from octavo.structured_output.backend import Matcher
from octavo.structured_output.engine import GrammarEngine
from octavo.structured_output.reasoning import AfterReasoning
from octavo.types.structured_outputs import StructuredOutputsParams

DIGITS = StructuredOutputsParams(regex="[0-9]{2}")


@pytest.fixture(scope="module")
def engine() -> Iterator[GrammarEngine]:
    config = StructuredOutputsConfig(backend="guidance", reasoning_marks=("<think>", "</think>"))
    grammars = GrammarEngine(config, vocabulary)
    yield grammars
    grammars.close()


def allowed(matcher: Matcher) -> set[int]:
    bits = np.zeros((SIZE + 31) // 32, np.int32)
    matcher.fill_bitmask(bits)
    return set(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist())


def after(engine: GrammarEngine, tokens: Sequence[int], prompt: Sequence[int] = ()) -> Matcher:
    inner = engine.prepare(DIGITS).result()()
    matcher = AfterReasoning(inner, ([THINK], [END_THINK]), prompt, [EOS])
    assert matcher.accept(tokens)
    return matcher


def test_an_answer_may_begin_with_reasoning_or_without(engine: GrammarEngine) -> None:
    first = allowed(after(engine, []))
    assert {THINK, ord("7")} <= first
    assert ord("x") not in first
    assert THINK not in allowed(after(engine, [ord("7")]))


def test_reasoning_is_free_but_cannot_end_the_answer(engine: GrammarEngine) -> None:
    inside = allowed(after(engine, [THINK, ord("x")]))
    assert {ord("x"), END_THINK} <= inside
    assert EOS not in inside
    behind = after(engine, [THINK, ord("x"), END_THINK])
    assert ord("x") not in allowed(behind)
    assert THINK not in allowed(behind)
    assert behind.accept([ord("1"), ord("2")])
    assert behind.is_terminated()


def test_a_prompt_may_have_begun_it(engine: GrammarEngine) -> None:
    assert ord("x") in allowed(after(engine, [], [1, THINK, 2]))
    assert ord("x") not in allowed(after(engine, [], [1, THINK, 2, END_THINK, 3]))


@pytest.mark.parametrize("prompt", [(), (THINK,)])
def test_tokens_can_be_taken_back(engine: GrammarEngine, prompt: Sequence[int]) -> None:
    tokens = [*([] if prompt else [THINK]), ord("x"), END_THINK, ord("1"), ord("2")]
    for size in range(len(tokens) + 1):
        for back in range(size + 1):
            matcher = after(engine, tokens[:size], prompt)
            matcher.rollback(back)
            assert allowed(matcher) == allowed(after(engine, tokens[: size - back], prompt))


def test_the_setting_decides(engine: GrammarEngine) -> None:
    assert isinstance(engine.matcher(DIGITS, []), AfterReasoning)
    config = StructuredOutputsConfig(reasoning_marks=("<think>", "</think>"), enable_in_reasoning=True)
    strict = GrammarEngine(config, vocabulary)
    assert not isinstance(strict.matcher(DIGITS, []), AfterReasoning)
    strict.close()
