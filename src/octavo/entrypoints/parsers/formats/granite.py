"""Granite 3."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_CALLS = JsonCalls()

FORMAT = Format(
    names=("granite",),
    models="Granite 3.0 to 3.3",
    tools=ToolFormat(
        sections=(("<|tool_call|>", _CALLS), ("<tool_call>", JsonCalls(close=("</tool_call>",)))),
        signs=(("<|tool_call|>",),),
    ),
    reasoning=ReasoningFormat(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        signs=(("Here is my thought process:",),),
    ),
    rank=2,
)
