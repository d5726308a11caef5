"""DeepSeek V3.1: the name and its arguments."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import NamedJson
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_CALLS = NamedJson(
    begins="<｜tool▁call▁begin｜>",
    separators=("<｜tool▁sep｜>",),
    ends=("<｜tool▁call▁end｜>",),
    close=("<｜tool▁calls▁end｜>",),
)

FORMAT = Format(
    names=("deepseek_v31",),
    models="DeepSeek V3.1",
    tools=ToolFormat(
        sections=(("<｜tool▁calls▁begin｜>", _CALLS),),
        strays=("<｜tool▁calls▁end｜>",),
        signs=(("<｜tool▁calls▁begin｜>",),),
    ),
    reasoning=ReasoningFormat(("<think>",), ("</think>",)),
    rank=2,
)
