"""What the door makes of texts, lists and lengths of a request about sampling."""

from __future__ import annotations

from typing import Any

import pytest
from tests.assets import smollm2_gguf
from tests.engine.fakes import VOCAB, fake_config, fake_tokenizer

from octavo.config import ModelConfig
from octavo.engine.input import MAX_PROMPT_LOGPROBS, InputProcessor, truncated
from octavo.engine.sampling_settings import processor_paths, reasoning_marks
from octavo.engine.token_rules import word_forms
from octavo.lib.errors import ConfigError, InvalidRequestError
from octavo.tokenizers import load_tokenizer
from octavo.types.engine import TokenRules
from octavo.types.sampling_params import SamplingParams


def model(**changes: Any) -> ModelConfig:
    import dataclasses

    return dataclasses.replace(fake_config(max_model_len=1 << 20).model, **changes)


def rules_of(**params: Any) -> TokenRules:
    made = InputProcessor(model(), fake_tokenizer())
    return made.process("r", [97], SamplingParams(max_tokens=4, **params)).children[0].token_rules


def test_words_and_marks_become_tokens() -> None:
    rules = rules_of(bad_words=["ab", " c"], thinking_token_budget=3)
    assert rules.bad_words == [
        [97, 98],
        [99],
    ]  # one byte a token: the space before a word is a token of its own
    assert bytes(rules.thinking_start) == b"<think>"
    assert bytes(rules.thinking_end) == b"</think>"
    assert rules_of() == TokenRules()


def test_a_word_is_held_back_in_both_of_its_spellings() -> None:
    tokenizer = load_tokenizer(str(smollm2_gguf()))
    begins, follows = word_forms(tokenizer, " Paris")
    assert tokenizer.decode(begins) == "Paris"
    assert tokenizer.decode(follows) == " Paris"
    assert begins != follows


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"allowed_token_ids": [VOCAB]}, "allowed_token_ids"),
        ({"logprob_token_ids": [0, VOCAB]}, "logprob_token_ids"),
        ({"extra_args": {"x": 1}}, "extra_args"),
        ({"bad_words": ["\ud800"]}, "bad_words"),
    ],
)
def test_what_this_model_cannot_do_is_refused(params: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        InputProcessor(model(), fake_tokenizer()).process("r", [97], SamplingParams(**params))
    assert caught.value.param == name


@pytest.mark.parametrize("params", [{"bad_words": ["x"]}, {"thinking_token_budget": 4}])
def test_texts_need_a_tokenizer(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="no tokenizer") as caught:
        InputProcessor(model(), None).process("r", [97], SamplingParams(**params))
    assert caught.value.param == next(iter(params))


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"allowed_token_ids": [1.0]}, "allowed_token_ids"),
        ({"allowed_token_ids": [True]}, "allowed_token_ids"),
        ({"allowed_token_ids": [0] * ((1 << 20) + 1)}, "allowed_token_ids"),
        ({"logprob_token_ids": [1] * 1025}, "logprob_token_ids"),
        ({"bad_words": ["x"] * 129}, "bad_words"),
        ({"bad_words": ["x" * 8193]}, "bad_words"),
        ({"bad_words": [" "]}, "bad_words"),
        ({"bad_words": "x"}, "bad_words"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"extra_args": {str(i): i for i in range(65)}}, "extra_args"),
        ({"extra_args": {"x": "y" * (1 << 16)}}, "extra_args"),
        ({"extra_args": {"x": object()}}, "extra_args"),
        ({"extra_args": {1: 1}}, "extra_args"),
        ({"prompt_logprobs": 1 << 21}, "prompt_logprobs"),
    ],
)
def test_lists_and_numbers_have_limits(params: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**params)
    assert caught.value.param == name


def test_prompt_logprobs_have_a_bound_in_all() -> None:
    made = InputProcessor(model(max_logprobs=-1), fake_tokenizer())
    most = MAX_PROMPT_LOGPROBS // (VOCAB + 1)
    asked = SamplingParams(max_tokens=1, prompt_logprobs=-1)
    assert made.process("r", [97] * most, asked).children
    with pytest.raises(InvalidRequestError, match=str(MAX_PROMPT_LOGPROBS)) as caught:
        made.process("r", [97] * (most + 1), asked)
    assert caught.value.param == "prompt_logprobs"


def test_a_prompt_is_cut_at_the_side_that_was_asked_for() -> None:
    ids = list(range(10))
    assert truncated(ids, None, "left", 5) == ids
    assert truncated(ids, 3, "left", 5) == [7, 8, 9]
    assert truncated(ids, 3, "right", 5) == [0, 1, 2]
    assert truncated(ids, -1, "left", 5) == [5, 6, 7, 8, 9]
    assert truncated(ids, -1, "left", 50) == ids
    for limit in (0, -2, 6, True, 2.0):
        with pytest.raises(InvalidRequestError, match="between 1 and 5") as caught:
            truncated(ids, limit, "left", 5)  # type: ignore[arg-type]
        assert caught.value.param == "truncate_prompt_tokens"


def test_flags() -> None:
    assert reasoning_marks(None) == ("<think>", "</think>")
    given = '{"reasoning_start_str": "[", "reasoning_end_str": "]"}'
    assert reasoning_marks(given) == ("[", "]")
    for bad in ("{", "[]", '{"reasoning_start_str": "["}', given.replace('"["', '""'), '{"a": "b"}'):
        with pytest.raises(ConfigError) as caught:
            reasoning_marks(bad)
        assert caught.value.param == "reasoning_config"
    assert processor_paths(None) == ()
    assert processor_paths([InputProcessor, "a.b:C", "a.b:C"]) == (
        "octavo.engine.input:InputProcessor",
        "a.b:C",
    )
    for wrong in ("a.b", "a:b:c", "", "a b:c", 3):
        with pytest.raises(ConfigError, match="logits"):
            processor_paths([wrong])  # type: ignore[list-item]
