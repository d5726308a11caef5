"""Kimi K2: the id holds the name."""

from __future__ import annotations

import re

from octavo.entrypoints.parsers.calls import NamedJson
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat


def _name_of(header: str) -> tuple[str, str | None]:
    call_id = header.strip()
    return re.sub(r":\d+$", "", call_id).removeprefix("functions."), call_id


_CALLS = NamedJson(
    begins="<|tool_call_begin|>",
    separators=("<|tool_call_argument_begin|>",),
    ends=("<|tool_call_end|>",),
    close=("<|tool_calls_section_end|>",),
    name_of=_name_of,
)

FORMAT = Format(
    names=("kimi_k2",),
    models="Kimi K2",
    tools=ToolFormat(
        sections=(("<|tool_calls_section_begin|>", _CALLS),),
        strays=("<|tool_calls_section_end|>",),
        signs=(("<|tool_calls_section_begin|>",),),
    ),
    reasoning=ReasoningFormat(
        ("<think>",), ("</think>",), ended_by_calls=True, signs=(("<|tool_calls_section_begin|>", "<think>"),)
    ),
    rank=4,
)
