"""MiniMax M2."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import Tagged
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_TAGS = Tagged(
    call=("<invoke name=", ">"),
    parameter=("<parameter name=", ">"),
    call_end="</invoke>",
    parameter_end="</parameter>",
    close=("</minimax:tool_call>",),
)

FORMAT = Format(
    names=("minimax_m2",),
    models="MiniMax M2",
    tools=ToolFormat(
        sections=(("<minimax:tool_call>", _TAGS),),
        strays=("</minimax:tool_call>",),
        signs=(("<minimax:tool_call>",),),
    ),
    reasoning=ReasoningFormat(
        ("<think>",), ("</think>",), assumed=True, signs=(("<minimax:tool_call>", "<think>"),)
    ),
    rank=4,
)
