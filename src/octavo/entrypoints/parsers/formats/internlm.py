"""InternLM 2.5 and 3."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("internlm",),
    models="InternLM 2.5, 3",
    tools=ToolFormat(
        sections=(("<|action_start|><|plugin|>", JsonCalls(close=("<|action_end|>",))),),
        signs=(("<|plugin|>",),),
    ),
    rank=2,
)
