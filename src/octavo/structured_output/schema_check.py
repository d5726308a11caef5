"""Which JSON schemas can be held to: every keyword that would be passed over in silence is refused, with its place.

Pure Python, so that a front can refuse a schema before it goes anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 64
MAX_SUBSCHEMAS = 20_000

# What holds schemas: alone, in a list, by name.
_ONE = frozenset(
    {"items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames",
     "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
)  # fmt: skip
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DEFINITIONS = ("$defs", "definitions")
# Say something about a schema, not about what it admits.
_NOTES = frozenset(
    {"$schema", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
     "deprecated", "readOnly", "writeOnly", "contentMediaType", "contentEncoding", "contentSchema", "$vocabulary"}
)  # fmt: skip
# All words that mean something in drafts 4 to 2020-12. Others are notes by the standard.
KEYWORDS = (
    _ONE
    | _LIST
    | _NAMED
    | _NOTES
    | frozenset(
        {
            "type",
            "enum",
            "const",
            "format",
            "pattern",
            "minLength",
            "maxLength",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minContains",
            "maxContains",
            "required",
            "minProperties",
            "maxProperties",
            "dependentRequired",
            "dependencies",
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "$id",
            "id",
            "$anchor",
            "$dynamicAnchor",
            "$recursiveAnchor",
        }
    )
)


@dataclass(frozen=True)
class SchemaFault:
    """What of a schema cannot be held to.

    Attributes:
        path: JSON pointer of the keyword, or of the schema, at fault.
        why: The rest of the sentence.
    """

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.why}"


@dataclass(frozen=True)
class Dialect:
    """The keywords that a backend holds to.

    Attributes:
        keywords: Beyond those that are notes.
        formats: Values of `format`.
    """

    name: str
    keywords: frozenset[str]
    formats: frozenset[str] = frozenset()


GUIDANCE = Dialect(
    "guidance",
    frozenset(
        {"type", "enum", "const", "allOf", "anyOf", "oneOf", "$ref", "items", "prefixItems", "additionalItems", "minItems",
         "maxItems", "properties", "patternProperties", "additionalProperties", "required", "minProperties",
         "maxProperties", "pattern", "minLength", "maxLength", "format", "minimum", "maximum", "exclusiveMinimum",
         "exclusiveMaximum", "multipleOf", "$id", "id", "$anchor"}
    ),
    frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"}
    ),
)  # fmt: skip
# Of the other libraries only what they were seen to hold to.
PLAIN = Dialect(
    "xgrammar or outlines",
    frozenset({"type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items"}),
)


def read_schema(text: str) -> Any:
    """A schema from its text.

    Raises:
        ValueError: it is no JSON, or nothing that can be a schema.
    """
    try:
        schema = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"is nested deeper than {MAX_DEPTH}") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(schema, (dict, bool)):
        raise ValueError("must be a JSON object")
    return schema


def find_fault(schema: Any, dialect: Dialect = GUIDANCE, *, definitions: bool = True) -> SchemaFault | None:
    """The first thing in a schema that the dialect cannot hold to; None: there is none.

    Args:
        definitions: Look into definitions too, whether they are used or not.
    """
    for count, (path, part) in enumerate(_subschemas(schema, definitions)):
        if count >= MAX_SUBSCHEMAS:
            return SchemaFault(path, f"a schema may have at most {MAX_SUBSCHEMAS} parts")
        if path.count("/") > 2 * MAX_DEPTH:
            return SchemaFault(path[:200], f"a schema may be nested at most {MAX_DEPTH} deep")
        fault = _fault_of(path, part, dialect)
        if fault is not None:
            return fault
    return None


def _fault_of(path: str, part: Any, dialect: Dialect) -> SchemaFault | None:
    if isinstance(part, bool):
        return None
    if not isinstance(part, dict):
        return SchemaFault(path, "a schema must be an object or a boolean")
    for word, value in part.items():
        where = f"{path}/{_escaped(word)}"
        if word in KEYWORDS and word not in dialect.keywords and word not in _NOTES:
            return SchemaFault(where, f"the keyword {word!r} is not supported")
        if word == "format" and isinstance(value, str) and value not in dialect.formats:
            return SchemaFault(where, f"the format {value[:64]!r} is not supported")
    return None


def _subschemas(schema: Any, definitions: bool) -> Iterator[tuple[str, Any]]:
    """(JSON pointer, schema) of a schema and of all in it, without recursion."""
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        path, part = waiting.pop()
        yield path, part
        if isinstance(part, dict):
            inner = {word: part[word] for word in part if definitions or word not in _DEFINITIONS}
            waiting.extend(reversed(list(_children(path, inner))))


def _children(path: str, part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for word, value in part.items():
        where = f"{path}/{_escaped(word)}"
        if word in _LIST and isinstance(value, list):
            yield from ((f"{where}/{at}", inner) for at, inner in enumerate(value))
        elif word in _NAMED and isinstance(value, dict):
            yield from ((f"{where}/{_escaped(name)}", inner) for name, inner in value.items())
        elif word in _ONE:
            yield where, value


def _escaped(word: str) -> str:
    return word.replace("~", "~0").replace("/", "~1")
