"""All formats by name, and which one a chat template speaks."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from octavo.entrypoints.parsers import formats
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat
from octavo.lib.errors import ConfigError


@cache
def builtin_formats() -> tuple[Format, ...]:
    """Every format that Octavo brings."""
    names = sorted(module.name for module in pkgutil.iter_modules(formats.__path__))
    return tuple(importlib.import_module(f"{formats.__name__}.{name}").FORMAT for name in names)


def plugin_format(path: str) -> Format:
    """The `FORMAT` of a Python file (or of a module that can be imported).

    Raises:
        ConfigError: it cannot be loaded, or has none.
    """
    try:
        if path.endswith(".py"):
            spec = importlib.util.spec_from_file_location(f"octavo_plugin_{Path(path).stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(path)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"--tool-parser-plugin {path!r}: {why}", param="tool_parser_plugin") from error
    found = getattr(module, "FORMAT", None)
    if not isinstance(found, Format):
        raise ConfigError(
            f"--tool-parser-plugin {path!r} has no FORMAT, which is to be an octavo.entrypoints.parsers.format.Format.",
            param="tool_parser_plugin",
        )
    return found


class Registry:
    """Formats to choose from.

    Args:
        plugins: Formats of a user; of two with one name, theirs is taken.
    """

    def __init__(self, plugins: Sequence[Format] = ()) -> None:
        ranked = sorted(builtin_formats(), key=lambda one: -one.rank)
        self._all = (*plugins, *ranked)

    def tools(self, name: str) -> ToolFormat:
        """The format that `--tool-call-parser` names.

        Raises:
            ConfigError: there is none.
        """
        by_name = {name: one.tools for one in reversed(self._all) if one.tools for name in one.names}
        if name not in by_name:
            raise _unknown("tool_call_parser", name, sorted(by_name))
        return by_name[name]

    def reasoning(self, name: str) -> ReasoningFormat:
        """The format that `--reasoning-parser` names.

        Raises:
            ConfigError: there is none.
        """
        by_name = {name: one.reasoning for one in reversed(self._all) if one.reasoning for name in one.names}
        if name not in by_name:
            raise _unknown("reasoning_parser", name, sorted(by_name))
        return by_name[name]

    def tools_of(self, template: str) -> ToolFormat | None:
        """How a model with this chat template writes calls, as far as the template tells."""
        found = (one.tools for one in self._all if one.tools)
        return next((tools for tools in found if _speaks(template, tools.signs)), None)

    def reasoning_of(self, template: str) -> ReasoningFormat | None:
        """How a model with this chat template sets reasoning off, as far as the template tells."""
        found = (one.reasoning for one in self._all if one.reasoning)
        return next((reasoning for reasoning in found if _speaks(template, reasoning.signs)), None)


def _speaks(template: str, signs: tuple[tuple[str, ...], ...]) -> bool:
    return any(all(sign in template for sign in together) for together in signs)


def _unknown(param: str, name: str, known: Sequence[str]) -> ConfigError:
    flag = "--" + param.replace("_", "-")
    return ConfigError(f"{flag} {name!r} is not one of: auto, none, {', '.join(known)}.", param=param)
