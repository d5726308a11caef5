"""Calls as a list of Python calls without any marker (Llama 3.2, ToolACE)."""

from __future__ import annotations

from octavo.entrypoints.parsers.format import Format, ToolFormat
from octavo.entrypoints.parsers.pythonic import Pythonic

FORMAT = Format(
    names=("pythonic",),
    models="Llama 3.2 1B and 3B with a pythonic template, ToolACE",
    tools=ToolFormat(bare=("[", Pythonic(known_only=True))),
)
