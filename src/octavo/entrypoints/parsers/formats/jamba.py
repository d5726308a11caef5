"""Jamba 1.5 and later."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("jamba",),
    models="Jamba 1.5, 1.6, 1.7",
    tools=ToolFormat(
        sections=(("<tool_calls>", JsonCalls(close=("</tool_calls>",))),),
        strays=("</tool_calls>",),
        signs=(("<tool_calls>",),),
    ),
    rank=1,
)
