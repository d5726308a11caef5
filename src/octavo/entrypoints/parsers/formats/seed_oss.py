"""Seed-OSS."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import Tagged
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_TAGS = Tagged(
    call=("<function=", ">"),
    parameter=("<parameter=", ">"),
    call_end="</function>",
    parameter_end="</parameter>",
    close=("</seed:tool_call>",),
)

FORMAT = Format(
    names=("seed_oss",),
    models="Seed-OSS",
    tools=ToolFormat(
        sections=(("<seed:tool_call>", _TAGS),), strays=("</seed:tool_call>",), signs=(("<seed:tool_call>",),)
    ),
    reasoning=ReasoningFormat(("<seed:think>",), ("</seed:think>",), signs=(("<seed:think>",),)),
    rank=4,
)
