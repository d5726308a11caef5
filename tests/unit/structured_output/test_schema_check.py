"""Keywords that would be passed over in silence are found, with their place."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.structured_output.schema_check import MAX_DEPTH, PLAIN, find_fault, read_schema


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"not": {}}, "/not"),
        ({"properties": {"a/b": {"items": {"uniqueItems": True}}}}, "/properties/a~1b/items/uniqueItems"),
        ({"anyOf": [{"type": "null"}, {"if": {}}]}, "/anyOf/1/if"),
        ({"additionalProperties": {"format": "postcode"}}, "/additionalProperties/format"),
        ({"$defs": {"x": {"contains": {}}}}, "/$defs/x/contains"),
        ({"properties": {"a": 3}}, "/properties/a"),
    ],
)
def test_what_is_not_held_to_is_named_with_its_place(schema: Any, path: str) -> None:
    fault = find_fault(schema)
    assert fault is not None
    assert fault.path == path


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object", "title": "t", "x-order": 3, "properties": {"not": {"type": "string"}, "if": True}},
        {"enum": [{"not": 1}], "default": {"contains": 2}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "format": "date-time"}}},
    ],
)
def test_notes_names_and_values_are_no_keywords(schema: Any) -> None:
    assert find_fault(schema) is None


def test_definitions_may_be_left_out_and_depth_is_bounded() -> None:
    assert find_fault({"$defs": {"x": {"not": {}}}}, definitions=False) is None
    deep: dict[str, Any] = {}
    for _ in range(3 * MAX_DEPTH):
        deep = {"items": deep}
    fault = find_fault(deep)
    assert fault is not None
    assert "deep" in fault.why


def test_other_libraries_are_asked_only_what_they_hold_to() -> None:
    assert find_fault({"type": "object", "properties": {"a": {"enum": [1]}}}, PLAIN) is None
    assert find_fault({"type": "string", "pattern": "a"}, PLAIN) is not None


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"items":' * 5000])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|nested"):
        read_schema(text)
