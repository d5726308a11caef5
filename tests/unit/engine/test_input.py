"""At the door: every prompt form is read, everything impossible is refused with the field and the limit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.engine.fakes import EOS, VOCAB, fake_config, fake_tokenizer

from octavo.engine.input import InputProcessor, default_sampling_params
from octavo.lib.errors import InvalidRequestError
from octavo.types.sampling_params import SEED_MAX, SamplingParams


def processor(**settings: Any) -> InputProcessor:
    return InputProcessor(fake_config(**settings).model, fake_tokenizer())


PLAIN = SamplingParams(max_tokens=4)


@pytest.mark.parametrize(
    ("prompt", "text", "ids"),
    [
        ("ab", "ab", [97, 98]),
        ([97, 98], None, [97, 98]),
        ((97, 98), None, [97, 98]),
        ({"prompt": "ab"}, "ab", [97, 98]),
        ({"prompt_token_ids": [97]}, None, [97]),
        ({"prompt": "shown", "prompt_token_ids": [97]}, "shown", [97]),
    ],
)
def test_every_form_of_prompt(prompt: Any, text: str | None, ids: list[int]) -> None:
    request = processor().process("r", prompt, PLAIN)
    assert (request.prompt, request.prompt_token_ids) == (text, ids)
    assert request.children[0].prompt_token_ids == ids


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "empty"),
        ([], "empty"),
        ({"prompt_token_ids": []}, "empty"),
        ({}, "needs `prompt`"),
        ({"prompt": 5}, "needs `prompt`"),
        ({"prompt": "x", "image": "y"}, "no key 'image'"),
        ([1, "a"], "integers"),
        ([True], "integers"),
        ([1.0], "integers"),
        (5, "list of integers"),
        ({"prompt_token_ids": "ab"}, "list of integers"),
        ([-1], "-1 in the prompt is outside"),
        ([0, VOCAB], f"{VOCAB} in the prompt is outside"),
        ([10**9], "outside the vocabulary"),
    ],
)
def test_what_is_no_prompt_is_refused(prompt: Any, message: str) -> None:
    """A66 and its kin."""
    with pytest.raises(InvalidRequestError, match=message) as caught:
        processor().process("r", prompt, PLAIN)
    assert caught.value.param == "prompt"


def test_over_the_context_tells_the_true_limit_and_both_lengths() -> None:
    """A03."""
    with pytest.raises(InvalidRequestError) as caught:
        processor(max_model_len=256).process("r", [5] * 20, SamplingParams(max_tokens=245))
    assert all(number in caught.value.message for number in ("256", "20", "245", "236"))
    assert caught.value.param == "max_tokens"


def test_exactly_the_context_is_taken() -> None:
    request = processor(max_model_len=256).process("r", [5] * 20, SamplingParams(max_tokens=236))
    assert request.children[0].sampling.max_tokens == 236


@pytest.mark.parametrize("length", [256, 300])
def test_a_prompt_that_leaves_no_room_is_refused(length: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{length} tokens.*256") as caught:
        processor(max_model_len=256).process("r", [5] * length, SamplingParams(max_tokens=None))
    assert caught.value.param == "prompt"


def test_without_max_tokens_the_answer_may_fill_the_context() -> None:
    request = processor(max_model_len=256).process("r", [5] * 20, SamplingParams(max_tokens=None))
    assert request.sampling.max_tokens == request.children[0].sampling.max_tokens == 236


def test_the_generation_config_bounds_it_too() -> None:
    made = processor(max_model_len=256, default_sampling=(("max_tokens", 50),))
    assert made.process("r", [5] * 20, SamplingParams(max_tokens=None)).sampling.max_tokens == 50
    assert made.process("r", [5] * 230, SamplingParams(max_tokens=None)).sampling.max_tokens == 26
    assert made.process("r", [5] * 20, SamplingParams(max_tokens=60)).sampling.max_tokens == 60


def test_min_tokens_must_fit_too() -> None:
    with pytest.raises(InvalidRequestError, match="min_tokens"):
        processor(max_model_len=256).process("r", [5] * 20, SamplingParams(max_tokens=None, min_tokens=237))


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"logit_bias": {99999999: 5.0}}, "logit_bias"),
        ({"stop_token_ids": [VOCAB]}, "stop_token_ids"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ],
)
def test_what_this_model_cannot_do_is_refused(params: dict[str, Any], name: str) -> None:
    """A40."""
    with pytest.raises(InvalidRequestError, match=name) as caught:
        processor().process("r", "ab", SamplingParams(**params))
    assert caught.value.param == name


def test_good_ids_in_logit_bias_are_taken() -> None:
    """A40."""
    assert processor().process("r", "ab", SamplingParams(logit_bias={5: -100.0})).children


def test_eos_ids_stop_unless_ignored() -> None:
    made = processor(eos_token_ids=(EOS, 7))
    child = made.process("r", "ab", SamplingParams(stop_token_ids=[9, 7])).children[0]
    assert (set(child.stop_token_ids), child.eos_token_ids) == ({9, 7, EOS}, [EOS, 7])
    ignoring = made.process("r", "ab", SamplingParams(stop_token_ids=[9, 7], ignore_eos=True)).children[0]
    assert (set(ignoring.stop_token_ids), ignoring.eos_token_ids) == ({9, 7}, [])


def test_n_sequences_have_their_own_ids_and_seeds() -> None:
    request = processor().process("r", "ab", SamplingParams(n=3, seed=7, prompt_logprobs=1))
    assert [child.sampling.seed for child in request.children] == [7, 8, 9]
    assert [child.sampling.n for child in request.children] == [1, 1, 1]
    assert [child.sampling.prompt_logprobs for child in request.children] == [1, None, None]
    assert len({child.request_id for child in request.children}) == 3


def test_the_largest_seed_wraps_around() -> None:
    request = processor().process("r", "ab", SamplingParams(n=2, seed=SEED_MAX))
    assert [child.sampling.seed for child in request.children] == [SEED_MAX, -SEED_MAX - 1]


def test_seeds_that_nobody_gave_differ_but_repeat_from_run_to_run() -> None:
    first, second = processor(), processor()
    drawn = [first.process(str(i), "ab", PLAIN).children[0].sampling.seed for i in range(20)]
    again = [second.process(str(i), "ab", PLAIN).children[0].sampling.seed for i in range(20)]
    assert drawn == again
    assert len(set(drawn)) == 20


def test_an_engine_id_is_never_used_twice() -> None:
    made = processor()
    assert (
        made.process("r", "ab", PLAIN).children[0].request_id
        != made.process("r", "ab", PLAIN).children[0].request_id
    )


@pytest.mark.parametrize("priority", [2**31, -(2**31), 2**70])
def test_priorities_have_limits(priority: int) -> None:
    with pytest.raises(InvalidRequestError, match="priority"):
        processor().process("r", "ab", PLAIN, priority=priority)


def test_defaults_come_from_the_generation_config() -> None:
    model = fake_config(default_sampling=(("temperature", 0.6), ("max_tokens", 64))).model
    params = default_sampling_params(model, top_k=3)
    assert (params.temperature, params.max_tokens, params.top_k) == (0.6, None, 3)


def test_a_text_that_no_tokens_can_spell_is_refused_unread() -> None:
    limited = processor(max_model_len=256)
    assert limited.process("r", "x" * 255, SamplingParams(max_tokens=1)).children
    with pytest.raises(InvalidRequestError, match=r"10000000 characters.* 256 tokens") as caught:
        limited.process("r", "x" * 10_000_000, SamplingParams(max_tokens=1))
    assert caught.value.param == "prompt"


def test_without_a_tokenizer_only_ids_go_in_and_no_text_is_looked_for() -> None:
    made = InputProcessor(fake_config().model, None)
    assert made.process("r", [97, 98], PLAIN).prompt_token_ids == [97, 98]
    for prompt, params, name in (("ab", PLAIN, "prompt"), ([97], SamplingParams(stop=["x"]), "stop")):
        with pytest.raises(InvalidRequestError, match="no tokenizer") as caught:
            made.process("r", prompt, params)
        assert caught.value.param == name


def test_more_answers_than_may_wait_are_refused() -> None:
    made = InputProcessor(fake_config().model, fake_tokenizer(), max_queued=8)
    assert len(made.process("r", "ab", SamplingParams(n=8)).children) == 8
    with pytest.raises(InvalidRequestError, match=r"9 answers.*at most 8") as caught:
        made.process("r", "ab", SamplingParams(n=9))
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"stop": ["a" * 8193]}, "stop"),
        ({"stop": ["a" * 200] * 64}, "stop"),
        ({"stop_token_ids": [1] * 4097}, "stop_token_ids"),
    ],
)
def test_what_would_take_long_to_look_for_is_refused(params: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match="takes at most") as caught:
        SamplingParams(**params)
    assert caught.value.param == name


@pytest.mark.parametrize("value", [1.5, "2", True, [3], {"a": 1}, b"x", float("nan"), 10**30, None, object()])
@pytest.mark.parametrize(
    "name", [field for field in SamplingParams.__struct_fields__ if field != "output_kind"]
)
def test_a_value_of_any_type_is_refused_or_reaches_the_engine_unchanged(name: str, value: Any) -> None:
    refused = ""
    try:
        params = SamplingParams(**{name: value})
    except InvalidRequestError as error:
        refused = str(error.param)
    if refused:
        assert refused == name or (name, refused) == ("max_tokens", "min_tokens")
    else:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
