"""Combinations of settings: from a JSON file, or each value of each list with each of the others."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.entrypoints.bench.arguments import flag_name, refuse

Setting = Mapping[str, Any]
"""Flags without their dashes, with underscores, and their values; true and false are `--flag` and `--no-flag`."""


def read_grid(path: str | None, lists: Sequence[str] | None, field: str) -> list[Setting]:
    """All combinations: the file's, each with every product of the lists. One empty setting if there is neither.

    Args:
        path: Of a JSON list of objects, or one object whose values are the settings.
        lists: Such as `max_concurrency=1,8,32`.
        field: The flag to name in errors.

    Raises:
        ConfigError: what is there cannot be understood.
    """
    from_file = _read_file(path, field) if path is not None else [{}]
    axes = [_axis(text, field) for text in lists or ()]
    combinations = [dict(pairs) for pairs in itertools.product(*axes)]
    return [{**one, **other} for one in from_file for other in combinations]


def to_flags(setting: Setting) -> list[str]:
    """The words of a command line."""
    words: list[str] = []
    for name, value in setting.items():
        flag = flag_name(name)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        else:
            words += [flag, str(value)]
    return words


def name_of(setting: Setting) -> str:
    """A name that is good for a folder: `max_concurrency=8-request_rate=2`, or `default`."""
    text = "-".join(f"{name}={value}" for name, value in setting.items())
    return re.sub(r"[^A-Za-z0-9=._-]+", "_", text) or "default"


def _read_file(path: str, field: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refuse(field, f"{path} cannot be read ({error})") from error
    settings = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(settings, list) or not settings or not all(isinstance(one, dict) for one in settings):
        raise refuse(field, f"{path} must hold a list of objects, one for each combination")
    return [{_field(name): value for name, value in one.items()} for one in settings]


def _axis(text: str, field: str) -> list[tuple[str, Any]]:
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise refuse(field, f"takes NAME=VALUE,VALUE,..., got {text!r}")
    return [(_field(name), _value(value)) for value in values.split(",")]


def _field(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text
