"""Hunyuan A13B: the answer stands between answer tags."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

FORMAT = Format(
    names=("hunyuan_a13b",),
    models="Hunyuan A13B",
    tools=ToolFormat(
        sections=(("<tool_calls>", JsonCalls(close=("</tool_calls>",))),),
        strays=("</tool_calls>",),
        signs=(("<tool_calls>", "<answer>"),),
    ),
    reasoning=ReasoningFormat(
        ("<think>",), ("</think>",), strays=("<answer>", "</answer>"), signs=(("<answer>", "<think>"),)
    ),
    rank=3,
)
