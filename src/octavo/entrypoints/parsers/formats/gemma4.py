"""Gemma 4."""

from __future__ import annotations

from octavo.entrypoints.parsers.braces import Braces
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("gemma4",),
    models="Gemma 4",
    tools=ToolFormat(
        sections=(("<|tool_call>", Braces(quote='<|"|>', close=("<tool_call|>",))),),
        strays=("<tool_call|>",),
        signs=(("<|tool_call>",),),
    ),
    rank=3,
)
