"""ERNIE 4.5: the answer stands between response tags."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

FORMAT = Format(
    names=("ernie45",),
    models="ERNIE 4.5 Thinking",
    tools=ToolFormat(
        sections=(("<tool_call>", JsonCalls(close=("</tool_call>",))),),
        strays=("</tool_call>",),
        signs=(("<tool_call>", "<response>"),),
    ),
    reasoning=ReasoningFormat(
        ("<think>",),
        ("</think>",),
        assumed=True,
        strays=("<response>", "</response>"),
        signs=(("<response>", "</think>"),),
    ),
    rank=2,
)
