"""Answers with a shape, on a tiny model with random weights: always valid, and the same whoever else is there."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import pytest
from tests.engine.stepping import Stepper, load, write_config
from tests.engine.structured_vocabulary import EOS, text_of, vocabulary
from tests.engine.test_bits import TINY

from octavo.config import StructuredOutputsConfig
from octavo.models.decoder import Decoder
from octavo.structured_output.engine import GrammarEngine
from octavo.types.engine import FinishReason
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import StructuredOutputsParams

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip
ENGINE = GrammarEngine(StructuredOutputsConfig(), vocabulary)
PROMPT = list(b"a prompt of a few tokens")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load(write_config(tmp_path_factory.mktemp("tiny"), TINY["llama-bf16"]), "dummy")


def asked(seed: int = 1, **fields: Any) -> SamplingParams:
    shape = {
        name: fields.pop(name) for name in list(fields) if name in StructuredOutputsParams.__struct_fields__
    }
    constraint = StructuredOutputsParams(**shape) if shape else None
    values = {"temperature": 1.5, "max_tokens": 200, "seed": seed} | fields
    return SamplingParams(structured_outputs=constraint, **values)


def stepper(model: Decoder, **settings: Any) -> Stepper:
    return Stepper(model, grammars=ENGINE, **settings)


def answers(
    model: Decoder, *requests: SamplingParams, **settings: Any
) -> list[tuple[list[int], FinishReason | None]]:
    engine = stepper(model, **settings)
    for index, sampling in enumerate(requests):
        engine.add(str(index), PROMPT, sampling, [EOS])
    return [
        (a.token_ids, a.finish_reason) for _, a in sorted(engine.run().items(), key=lambda item: int(item[0]))
    ]


def one(model: Decoder, sampling: SamplingParams, **settings: Any) -> tuple[str, FinishReason | None]:
    ((ids, reason),) = answers(model, sampling, **settings)
    return text_of(ids), reason


@pytest.mark.parametrize("seed", range(8))
def test_a_schema_is_held_to(model: Decoder, seed: int) -> None:
    text, reason = one(model, asked(seed, json=PERSON))
    assert reason is FinishReason.STOP
    jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    "pattern", ["[a-z]{3}-[0-9]{2,4}", "[à-ÿ]{3}", "[一-龥]{2}", "[^a-z]{3}", "(yes|no), sir"]
)
def test_a53_expressions_match_as_a_whole(model: Decoder, pattern: str) -> None:
    for seed in range(5):
        text, reason = one(model, asked(seed, regex=pattern))
        assert reason is FinishReason.STOP
        assert re.fullmatch(pattern, text)


def test_a54_a_declared_property_keeps_its_type_beside_others(model: Decoder) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": True,
        "required": [],
    }
    bias = {ord(letter): 6.0 for letter in '{"a":x}'}
    requests = [asked(seed, json=schema, logit_bias=bias, max_tokens=60) for seed in range(100)]
    ended = [text_of(ids) for ids, reason in answers(model, *requests) if reason is FinishReason.STOP]
    assert ended
    for text in ended:
        found = json.loads(text)
        assert type(found.get("a", 0)) is int


def test_a56_pattern_properties_leave_the_others_reachable(model: Decoder) -> None:
    strings = {"type": "string", "maxLength": 3}
    schema = {"type": "object", "properties": {"name": strings, "grade": strings}, "required": ["name", "grade"],
              "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False}  # fmt: skip
    for ids, reason in answers(model, *(asked(seed, json=schema, max_tokens=400) for seed in range(10))):
        if reason is FinishReason.STOP:
            jsonschema.validate(json.loads(text_of(ids)), schema)


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 0, "maximum": 20000000000},
        {"minimum": -5, "maximum": 5},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 10},
    ],
)
def test_a59_integers_stay_within_their_bounds(model: Decoder, bounds: dict[str, int]) -> None:
    schema = {"type": "integer"} | bounds
    for seed in range(8):
        text, reason = one(model, asked(seed, json=schema))
        assert reason is FinishReason.STOP
        jsonschema.validate(json.loads(text), schema)


def test_a60_white_space_is_bounded(model: Decoder) -> None:
    bias = {ord(letter): 8.0 for letter in " \n"}
    schema = {"type": "object", "properties": {n: {"type": "string", "maxLength": 8} for n in "ab"},
              "required": ["a", "b"], "additionalProperties": False}  # fmt: skip
    requests = [asked(seed, json=schema, max_tokens=400, logit_bias=bias) for seed in range(50)]
    for ids, reason in answers(model, *requests):
        assert reason is FinishReason.STOP
        text = text_of(ids)
        assert set(json.loads(text)) == {"a", "b"}
        assert not re.search(r"\s{41}", re.sub(r'"(?:[^"\\]|\\.)*"', "x", text))


def test_choices_grammars_and_tags(model: Decoder) -> None:
    assert one(model, asked(choice=["yes", "no"]))[0] in ("yes", "no")
    assert re.fullmatch("a[0-9]{3}", one(model, asked(grammar='root ::= "a" d d d\nd ::= [0-9]'))[0])
    assert re.fullmatch("(ab)+c", one(model, asked(grammar='start: ("ab")+ "c"'))[0])
    assert isinstance(json.loads(one(model, asked(json={"type": "boolean"}, n=1))[0]), bool)
    tag = {
        "type": "tag",
        "begin": "<f>",
        "content": {"type": "json_schema", "json_schema": {"type": "null"}},
        "end": "</f>",
    }
    form = {"type": "structural_tag", "format": tag}
    assert one(model, asked(structural_tag=form)) == ("<f>null</f>", FinishReason.STOP)


def mixed() -> list[SamplingParams]:
    return [
        asked(1, json=PERSON),
        asked(2),
        asked(3, regex="[a-f]{4,30}"),
        asked(4, json=PERSON, disable_any_whitespace=True, temperature=0.0),
        asked(5, choice=["name", "namely", "nobody"]),
        asked(6, json_object=True, max_tokens=40),
        asked(7, max_tokens=60, min_tokens=60),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 32, "long_prefill_token_threshold": 8},
        {"num_blocks": 24},
        {"enable_prefix_caching": True},
        {"recorded": True, "max_decode_steps": 8},
    ],
    ids=["together", "chunked", "preempted", "cached", "recorded"],
)
def test_neighbours_chunks_and_preemption_change_nothing(model: Decoder, settings: dict[str, Any]) -> None:
    alone = [answers(model, sampling)[0] for sampling in mixed()]
    assert answers(model, *mixed(), **settings) == alone


def test_jumping_ahead_changes_nothing_but_the_number_of_steps(model: Decoder) -> None:
    """Log probabilities are wanted of every token, so then none is jumped over."""
    shape = {"json": PERSON, "disable_any_whitespace": True}
    for seed in range(5):
        jumping, walking = stepper(model), stepper(model)
        jumping.add("a", PROMPT, asked(seed, **shape), [EOS])
        walking.add("a", PROMPT, asked(seed, logprobs=1, **shape), [EOS])
        assert jumping.run()["a"].token_ids == walking.run()["a"].token_ids
        assert len(jumping.step_sizes) < len(walking.step_sizes)
        assert len(walking.answers["a"].logprobs) == len(walking.answers["a"].token_ids)


def test_an_answer_goes_on_where_another_engine_left_it(model: Decoder) -> None:
    ((whole, reason),) = answers(model, asked(json=PERSON))
    for cut in random.Random(0).sample(range(1, len(whole)), 5):
        engine = stepper(model)
        engine.add("a", PROMPT, asked(json=PERSON), [EOS], output_token_ids=whole[:cut])
        assert whole[:cut] + engine.run()["a"].token_ids == whole
        assert engine.answers["a"].finish_reason is reason


def test_what_cannot_be_compiled_fails_alone(model: Decoder) -> None:
    engine = stepper(model)
    engine.errors_expected = True
    engine.add("bad", PROMPT, asked(regex="("), [EOS])
    engine.add("good", PROMPT, asked(regex="[0-9]{4}"), [EOS])
    found = engine.run()
    assert "unclosed group" in (found["bad"].error or "")
    assert re.fullmatch("[0-9]{4}", text_of(found["good"].token_ids))
