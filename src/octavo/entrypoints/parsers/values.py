"""Values that a format writes as plain text, typed by the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from octavo.entrypoints.parsers.json_text import quoted

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
# Deeper schemas say no more about a value's type.
_DEPTH = 8


def properties_of(tools: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The schemas of a tool's parameters, as far as they are stated."""
    schema = tools.get(name)
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def types_of(schema: Any, depth: int = _DEPTH) -> frozenset[str]:
    """The JSON types that a schema admits; empty: it does not say."""
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    stated = schema.get("type")
    if isinstance(stated, str):
        return frozenset({stated})
    if isinstance(stated, list):
        return frozenset(kind for kind in stated if isinstance(kind, str))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return frozenset().union(*(types_of(option, depth - 1) for option in schema[key]))
    options = schema.get("enum")
    if isinstance(options, list) and all(isinstance(option, str) for option in options):
        return frozenset({"string"})
    return frozenset()


def typed(text: str, types: frozenset[str]) -> str:
    """JSON for a value written as plain text: of one of `types` if it can be read so, else a string."""
    bare = text.strip()
    lower = bare.lower()
    if lower in ("null", "none") and "string" not in types:
        return "null"
    if lower in ("true", "false") and (not types or "boolean" in types):
        return lower
    if (not types or "number" in types) and _NUMBER.fullmatch(bare):
        return bare
    if "integer" in types and _INTEGER.fullmatch(bare):
        return bare
    if bare[:1] in ("{", "[") and types != {"string"} and _is_json(bare):
        return bare
    return quoted(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
