"""Step 3."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import Tagged
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_TAGS = Tagged(
    call=("<steptml:invoke name=", ">"),
    parameter=("<steptml:parameter name=", ">"),
    call_end="</steptml:invoke>",
    parameter_end="</steptml:parameter>",
    close=("<｜tool_calls_end｜>",),
    skipped=("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>", "function"),
    trim=False,
)

FORMAT = Format(
    names=("step3",),
    models="Step 3",
    tools=ToolFormat(
        sections=(("<｜tool_calls_begin｜>", _TAGS),),
        strays=("<｜tool_calls_end｜>",),
        signs=(("<｜tool_calls_begin｜>",),),
    ),
    reasoning=ReasoningFormat(
        ("<think>",), ("</think>",), assumed=True, signs=(("<｜tool_calls_begin｜>", "think>"),)
    ),
    rank=4,
)
