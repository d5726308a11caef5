"""xLAM: a list of calls, bare or behind a marker."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("xlam",),
    models="xLAM, xLAM 2",
    tools=ToolFormat(
        sections=(
            ("[TOOL_CALLS]", JsonCalls()),
            ("<tool_call>", JsonCalls(close=("</tool_call>",))),
        ),
        bare=("[{", JsonCalls(known_only=True)),
        strays=("</tool_call>",),
    ),
)
