"""`--structured-outputs-config`: JSON, or a dictionary in a script, as settings."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from octavo.config import StructuredOutputsConfig
from octavo.lib.errors import ConfigError
from octavo.structured_output.libraries import check_backend

_FLAG = "--structured-outputs-config"
_FLAGS = ("disable_any_whitespace", "disable_additional_properties", "enable_in_reasoning")
# vLLM's, with another meaning of its own here or none: a request falls back only where `auto` is asked for.
_IGNORED = frozenset({"disable_fallback", "reasoning_parser", "reasoning_parser_plugin"})
_MAX_SECONDS = 3600


def structured_outputs_config(given: str | Mapping[str, Any] | None) -> StructuredOutputsConfig:
    """The settings.

    Raises:
        ConfigError: names the key.
    """
    values = _values(given)
    known = {field.name for field in dataclasses.fields(StructuredOutputsConfig)}
    for name in values:
        if name not in known:
            _refuse(f"has no key {name!r}; it takes {', '.join(sorted(known))}")
    for name in _FLAGS:
        if not isinstance(values.get(name, False), bool):
            _refuse(f"{name} must be true or false, got {values[name]!r}")
    check_backend(str(values.get("backend", "auto")))
    if "reasoning_marks" in values:
        values["reasoning_marks"] = _marks(values["reasoning_marks"])
    seconds = values.get("compile_seconds", 1.0)
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not is_number or not 0 < seconds <= _MAX_SECONDS:
        _refuse(f"compile_seconds must be above 0 and at most {_MAX_SECONDS}, got {seconds!r}")
    return StructuredOutputsConfig(**values)


def _values(given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return {}
    value: Any = given
    if isinstance(given, str):
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        _refuse(f"must be a JSON object, got {given!r}")
    return {name: setting for name, setting in value.items() if name not in _IGNORED}


def _marks(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    if not pair or not all(isinstance(text, str) and text for text in value):
        _refuse(f'reasoning_marks must be two texts, such as ["<think>", "</think>"], got {value!r}')
    return value[0], value[1]


def _refuse(why: str) -> None:
    raise ConfigError(f"{_FLAG}: {why}.", param="structured_outputs_config")
