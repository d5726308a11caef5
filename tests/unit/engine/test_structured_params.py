"""`StructuredOutputsParams`: one constraint of a bounded size, or an error that names the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from octavo import SamplingParams, StructuredOutputsParams
from octavo.lib.errors import InvalidRequestError
from octavo.types.structured_outputs import MAX_CHARACTERS, MAX_CHOICES


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({}, "", "exactly one of"),
        ({"json_object": False}, "", "got none"),
        ({"regex": "a", "choice": ["a"]}, "", "got regex and choice"),
        ({"regex": 3}, ".regex", "must be a string"),
        ({"json": [1]}, ".json", "must be a dictionary"),
        ({"json": {"const": float("nan")}}, ".json", "is not JSON"),
        ({"choice": "yes"}, ".choice", "a list of strings"),
        ({"choice": []}, ".choice", f"1 to {MAX_CHOICES}"),
        ({"choice": ["a", ""]}, ".choice", "non-empty"),
        ({"choice": ["a"] * (MAX_CHOICES + 1)}, ".choice", f"got {MAX_CHOICES + 1}"),
        ({"grammar": "x" * (MAX_CHARACTERS + 1)}, ".grammar", f"at most {MAX_CHARACTERS}"),
        (
            {"json_object": True, "disable_any_whitespace": True, "whitespace_pattern": " "},
            ".whitespace_pattern",
            "cannot have both",
        ),
    ],
)
def test_what_is_refused(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        StructuredOutputsParams(**fields)
    assert caught.value.param == f"structured_outputs{param}"


def test_kind_and_text() -> None:
    assert StructuredOutputsParams(json={"b": 1, "a": "é"}).text == '{"b":1,"a":"é"}'
    assert StructuredOutputsParams(regex="a+").kind == "regex"
    assert StructuredOutputsParams(choice=("a", "b")).text == '["a","b"]'


def test_it_crosses_the_wire_inside_sampling_params() -> None:
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json={"type": "integer"}))
    assert not params.draws_plainly
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
