"""Strict, typed reading of a configuration: each key read is remembered, and what nobody read is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar, overload

from octavo.lib.errors import CheckpointError, UnsupportedModelError

_Int: TypeAlias = int
_Float: TypeAlias = float
_Bool: TypeAlias = bool
_Str: TypeAlias = str
T = TypeVar("T")
_List: TypeAlias = list[T]


def read_json(file: Path) -> object:
    """What a JSON file holds.

    Raises:
        CheckpointError: it cannot be read or is no JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise CheckpointError(f"cannot be read: {e.strerror or e}", file=str(file)) from e
    except (ValueError, RecursionError) as e:
        raise CheckpointError(f"is not valid JSON: {e}", file=str(file)) from e


class _Required:
    """Stands for "there is no default"."""


REQUIRED = _Required()


class ConfigValues:
    """A mapping of settings with typed reads. `null` counts as absent.

    Args:
        values: The settings as parsed.
        origin: File that they come from, for errors.
        prefix: Path of this mapping inside the file, as `rope_parameters.`.
    """

    def __init__(self, values: Mapping[str, object], origin: str, prefix: str = "") -> None:
        self.values = values
        self.origin = origin
        self.prefix = prefix
        self._read: set[str] = set()
        self._subs: dict[str, ConfigValues] = {}

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def error(self, key: str, message: str) -> CheckpointError:
        """A `CheckpointError` that names the file and the setting."""
        return CheckpointError(f"setting {self.prefix + key!r} {message}", file=self.origin)

    def unsupported(self, key: str, message: str) -> UnsupportedModelError:
        """An `UnsupportedModelError` that names the file and the setting."""
        return UnsupportedModelError(f"setting {self.prefix + key!r} {message}", file=self.origin)

    def get(self, key: str, default: object = None) -> object:
        """The raw value, remembered as read."""
        self._read.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def _typed(self, key: str, kinds: tuple[type, ...], what: str, default: object) -> object:
        value = self.get(key, default)
        if value is REQUIRED:
            raise self.error(key, "is missing")
        if value is default:
            return value
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(key, f"must be {what}, but is {value!r}")
        return value

    @overload
    def int(self, key: _Str, default: _Int | _Required = REQUIRED) -> _Int: ...
    @overload
    def int(self, key: _Str, default: None) -> _Int | None: ...
    def int(self, key: _Str, default: _Int | _Required | None = REQUIRED) -> _Int | None:
        """A whole number that is not negative."""
        value = self._typed(key, (int,), "a whole number", default)
        assert value is None or isinstance(value, int)
        if value is not None and value < 0:
            raise self.error(key, f"must not be negative, but is {value}")
        return value

    @overload
    def float(self, key: _Str, default: _Float | _Required = REQUIRED) -> _Float: ...
    @overload
    def float(self, key: _Str, default: None) -> _Float | None: ...
    def float(self, key: _Str, default: _Float | _Required | None = REQUIRED) -> _Float | None:
        """A number."""
        value = self._typed(key, (int, float), "a number", default)
        assert value is None or isinstance(value, (int, float))
        return None if value is None else _Float(value)

    def limit(self, key: _Str, default: _Int | _Required = REQUIRED) -> _Int:
        """A whole number that an explicit `null` switches off: then 0. The default is for absence."""
        return 0 if self.values.get(key, REQUIRED) is None else self.int(key, default)

    def cap(self, key: _Str, default: _Float | _Required = REQUIRED) -> _Float:
        """A number that an explicit `null` switches off: then 0. The default is for absence."""
        return 0.0 if self.values.get(key, REQUIRED) is None else self.float(key, default)

    def bool(self, key: _Str, default: _Bool | _Required = REQUIRED) -> _Bool:
        """`true` or `false`."""
        value = self._typed(key, (bool,), "true or false", default)
        assert isinstance(value, bool)
        return value

    @overload
    def str(self, key: _Str, default: _Str | _Required = REQUIRED) -> _Str: ...
    @overload
    def str(self, key: _Str, default: None) -> _Str | None: ...
    def str(self, key: _Str, default: _Str | _Required | None = REQUIRED) -> _Str | None:
        """A string."""
        value = self._typed(key, (str,), "a string", default)
        assert value is None or isinstance(value, str)
        return value

    def list(self, key: _Str, element: type[T]) -> _List[T] | None:
        """A list whose elements are all of one type (`float` accepts whole numbers), or None."""
        value = self.get(key)
        if value is None:
            return None
        allowed = (int, float) if element is float else (element,)
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, allowed) for item in value):
            raise self.error(key, f"must be a list of {element.__name__}, but is {value!r}")
        return [element(item) for item in value]  # type: ignore[call-arg]

    def sub(self, key: _Str) -> ConfigValues:
        """The settings nested under `key`; empty where there are none."""
        if key not in self._subs:
            value = self.get(key, {})
            if not isinstance(value, Mapping):
                raise self.error(key, f"must be an object, but is {value!r}")
            self._subs[key] = ConfigValues(value, self.origin, f"{self.prefix}{key}.")
        return self._subs[key]

    def expect(self, key: _Str, *allowed: object) -> None:
        """Refuse a setting that is present with a value other than these: code that honours it does not exist."""
        value = self.get(key)
        if value is not None and value not in allowed:
            options = " or ".join(repr(option) for option in allowed)
            raise self.unsupported(key, f"is {value!r}; only {options} is supported here")

    def unread(self, harmless: frozenset[_Str]) -> _List[_Str]:
        """Full names of the settings that hold something and that nobody has read."""
        own = [
            f"{self.prefix}{key}"
            for key, value in self.values.items()
            if value is not None and key not in self._read and key not in harmless and not key.startswith("_")
        ]
        return own + [name for sub in self._subs.values() for name in sub.unread(harmless)]
