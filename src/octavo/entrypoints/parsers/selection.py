"""Which formats a server reads answers by: those that its flags name, or what a chat template gives away."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from octavo.entrypoints.parsers.format import ToolFormat
from octavo.entrypoints.parsers.registry import Registry, plugin_format

T = TypeVar("T")

AUTO, NONE = "auto", "none"
# What a model is told to write whose template knows nothing of tools.
GENERIC = "hermes"
_TOOLS = re.compile(r"\btools\b")


@lru_cache(maxsize=64)
def shows_tools(template: str) -> bool:
    """Whether a chat template tells the model which tools there are."""
    return _TOOLS.search(template) is not None


class Selection:
    """The formats of one server.

    Args:
        tool_call_parser, reasoning_parser: A format's name, `auto` or `none`.
        plugins: Files or modules that define more formats.

    Raises:
        ConfigError: a name is unknown or a plugin cannot be loaded.
    """

    def __init__(self, tool_call_parser: str = AUTO, reasoning_parser: str = AUTO, *plugins: str) -> None:
        registry = Registry([plugin_format(path) for path in filter(None, plugins)])

        def detected(template: str) -> ToolFormat | None:
            return registry.tools_of(template) if shows_tools(template) else registry.tools(GENERIC)

        self.tools = _chosen(tool_call_parser, registry.tools, detected)
        """How a model with a given chat template writes calls; None: not known."""
        self.reasoning = _chosen(reasoning_parser, registry.reasoning, registry.reasoning_of)
        """How it sets off reasoning; None: not at all."""


def _chosen(
    name: str, named: Callable[[str], T], detected: Callable[[str], T | None]
) -> Callable[[str], T | None]:
    if name == AUTO:
        return lru_cache(maxsize=64)(detected)
    found = None if name == NONE else named(name)
    return lambda template: found
