"""Phi-4-mini."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("phi4_mini_json",),
    models="Phi-4-mini",
    tools=ToolFormat(
        sections=(
            ("functools", JsonCalls()),
            ("<|tool_call|>", JsonCalls(close=("<|/tool_call|>",))),
        ),
        signs=(("<|/tool|>",),),
    ),
    rank=2,
)
