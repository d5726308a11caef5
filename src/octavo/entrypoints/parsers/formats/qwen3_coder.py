"""Qwen3-Coder and Qwen3.5: a tag for each parameter."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import Layout, Tagged
from octavo.entrypoints.parsers.format import Format, ToolFormat

_TAGS = Tagged(
    call=("<function=", ">"),
    parameter=("<parameter=", ">"),
    call_end="</function>",
    parameter_end="</parameter>",
    close=("</tool_call>",),
)
SECTIONS: tuple[tuple[str, Layout], ...] = (("<tool_call>", _TAGS),)

FORMAT = Format(
    names=("qwen3_coder", "qwen3_xml", "mimo"),
    models="Qwen3-Coder, Qwen3.5, MiMo, Nemotron 3",
    tools=ToolFormat(sections=SECTIONS, strays=("</tool_call>",), signs=(("<function=", "<parameter="),)),
    rank=3,
)
