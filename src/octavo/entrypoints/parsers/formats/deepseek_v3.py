"""DeepSeek V3 and R1: arguments in a fenced block."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import NamedJson
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat


def _name_of(header: str) -> tuple[str, str | None]:
    return header.rpartition("<｜tool▁sep｜>")[2].strip(), None


_CALLS = NamedJson(
    begins="<｜tool▁call▁begin｜>",
    separators=("```json",),
    ends=("```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"),
    close=("<｜tool▁calls▁end｜>",),
    name_of=_name_of,
)

FORMAT = Format(
    names=("deepseek_v3", "deepseek_r1"),
    models="DeepSeek V3, R1",
    tools=ToolFormat(
        sections=(("<｜tool▁calls▁begin｜>", _CALLS),),
        strays=("<｜tool▁calls▁end｜>",),
        signs=(("<｜tool▁calls▁begin｜>", "```json"),),
    ),
    reasoning=ReasoningFormat(
        ("<think>",), ("</think>",), assumed=True, signs=(("<｜Assistant｜>", "</think>"),)
    ),
    rank=3,
)
