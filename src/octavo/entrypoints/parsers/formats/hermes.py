"""Calls of Hermes 2 Pro, which Qwen2.5, Qwen3 and Granite 4 write too."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("hermes",),
    models="Hermes 2 Pro and 3, Qwen2.5, Qwen3, Granite 4",
    tools=ToolFormat(
        sections=(("<tool_call>", JsonCalls(close=("</tool_call>",))),),
        strays=("</tool_call>",),
        signs=(("<tool_call>", "</tool_call>", "arguments"),),
    ),
)
