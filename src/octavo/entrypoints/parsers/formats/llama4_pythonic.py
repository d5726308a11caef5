"""Llama 4."""

from __future__ import annotations

from octavo.entrypoints.parsers.format import Format, ToolFormat
from octavo.entrypoints.parsers.pythonic import Pythonic

FORMAT = Format(
    names=("llama4_pythonic",),
    models="Llama 4",
    tools=ToolFormat(
        sections=(("<|python_start|>", Pythonic(close=("<|python_end|>",))),),
        bare=("[", Pythonic(known_only=True)),
        strays=("<|python_end|>",),
        signs=(("<|python_start|>",),),
    ),
    rank=2,
)
