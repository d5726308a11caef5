"""Schemas made at random, a model with random weights, temperature 1.5: every answer that ends is valid."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from tests.engine.structured_vocabulary import EOS, text_of
from tests.engine.test_structured import PROMPT, asked, model, stepper

from octavo.models.decoder import Decoder
from octavo.types.engine import FinishReason

__all__ = ["model"]


def schema(draw: random.Random, depth: int = 3) -> dict[str, Any]:
    """Any schema that the grammars know, small enough to be filled in."""
    kinds = [_string, _integer, _number, _enumeration, _constant, _boolean]
    nested = [_object, _array, _choice, _object]
    return draw.choice(kinds + nested if depth else kinds)(draw, depth)


def _string(draw: random.Random, depth: int) -> dict[str, Any]:
    limits = {"minLength": draw.randint(0, 2), "maxLength": draw.randint(2, 6)}
    others = [{"pattern": "^[a-c]{1,4}$"}, {"format": draw.choice(["date", "time", "ipv4", "uuid"])}, limits]
    return {"type": "string"} | draw.choice(others)


def _integer(draw: random.Random, depth: int) -> dict[str, Any]:
    low = draw.randint(-1000, 1000)
    bounds: list[dict[str, Any]] = [{"minimum": low, "maximum": low + draw.randint(0, 10**9)},
                                    {"exclusiveMinimum": low, "exclusiveMaximum": low + draw.randint(2, 50)}]  # fmt: skip
    return {"type": "integer"} | draw.choice(bounds)


def _number(draw: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "number", "minimum": -draw.random() * 10, "maximum": draw.random() * 10}


def _enumeration(draw: random.Random, depth: int) -> dict[str, Any]:
    values: list[Any] = ["a", "name", 3, None, True, [1], {"x": 1}, '\u00e4"', -1.5]
    return {"enum": draw.sample(values, draw.randint(1, 5))}


def _constant(draw: random.Random, depth: int) -> dict[str, Any]:
    return {"const": draw.choice(["x", 12, False, None, {"a": []}])}


def _boolean(draw: random.Random, depth: int) -> dict[str, Any]:
    return {"type": draw.choice(["boolean", "null"])}


def _object(draw: random.Random, depth: int) -> dict[str, Any]:
    names = draw.sample(["name", "na", "a", "b c", "\u00fc", "true"], draw.randint(0, 3))
    others: Any = draw.choice([False, schema(draw, 0)])
    return {
        "type": "object",
        "properties": {name: schema(draw, depth - 1) for name in names},
        "required": draw.sample(names, draw.randint(0, len(names))),
        "additionalProperties": others,
    }


def _array(draw: random.Random, depth: int) -> dict[str, Any]:
    least = draw.randint(0, 2)
    first = {"prefixItems": [schema(draw, 0)]} if draw.random() < 0.3 else {}
    return {
        "type": "array",
        "items": schema(draw, depth - 1),
        "minItems": least,
        "maxItems": least + 2,
    } | first


def _choice(draw: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [schema(draw, depth - 1) for _ in range(draw.randint(1, 3))]}


def check(model: Decoder, seeds: range) -> int:
    """Answer one schema a seed, 25 at a time; how many ended."""
    ended = 0
    for first in range(seeds.start, seeds.stop, 25):
        engine, schemas = stepper(model), {}
        engine.errors_expected = True
        for seed in range(first, min(first + 25, seeds.stop)):
            schemas[str(seed)] = schema(random.Random(seed))
            engine.add(str(seed), PROMPT, asked(seed, json=schemas[str(seed)], max_tokens=600), [EOS])
        for name, answer in engine.run().items():
            assert answer.error is None, (schemas[name], answer.error)
            if answer.finish_reason is FinishReason.STOP:
                ended += 1
                jsonschema.Draft202012Validator(schemas[name]).validate(json.loads(text_of(answer.token_ids)))
    return ended


def test_a_few_generated_schemas(model: Decoder) -> None:
    assert check(model, range(20)) > 15


@pytest.mark.slow
def test_five_hundred_generated_schemas(model: Decoder) -> None:
    ended = check(model, range(500))
    print(f"{ended} of 500 answers ended, and were valid")
    assert ended > 400
