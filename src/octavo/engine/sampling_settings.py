"""What the flags about sampling mean: import paths of logits processors, the marks of reasoning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import entry_points

import msgspec

from octavo.lib.errors import ConfigError

PROCESSOR_ENTRY_POINTS = "octavo.logits_processors"
_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def processor_paths(given: Sequence[str | type] | None) -> tuple[str, ...]:
    """Import paths of logits processors: those given, then those of installed packages (`octavo.logits_processors`).

    Raises:
        ConfigError: one is no path `package.module:Class`, or a class that cannot be imported by its name.
    """
    named = [one if isinstance(one, str) else _path_of_class(one) for one in given or ()]
    for path in named:
        if not _IMPORT_PATH.fullmatch(path):
            raise ConfigError(
                f"--logits-processors takes import paths such as package.module:Class, got {path!r}.",
                param="logits_processors",
            )
    installed = [entry.value for entry in entry_points(group=PROCESSOR_ENTRY_POINTS)]
    return tuple(dict.fromkeys([*named, *installed]))


def _path_of_class(cls: type) -> str:
    if not isinstance(cls, type) or "<locals>" in cls.__qualname__:
        raise ConfigError(
            f"logits_processors takes classes of a module, or their import paths, got {cls!r}.",
            param="logits_processors",
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def reasoning_marks(text: str | None) -> tuple[str, str]:
    """The texts that begin and end reasoning, of `--reasoning-config` (None: the usual ones).

    Raises:
        ConfigError: it is no JSON object of these two strings.
    """
    names = ("reasoning_start_str", "reasoning_end_str")
    if text is None:
        return "<think>", "</think>"
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--reasoning-config is no JSON object of strings: {error}.", param="reasoning_config"
        ) from error
    if set(found) != set(names) or not all(found.values()):
        raise ConfigError(f"--reasoning-config takes {' and '.join(names)}.", param="reasoning_config")
    return found[names[0]], found[names[1]]
