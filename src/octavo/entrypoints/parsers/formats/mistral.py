"""Mistral: a list, or since version 11 of its tokenizer a name and its arguments."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls, NamedJson
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat


def _name_of(header: str) -> tuple[str, str | None]:
    name, _, call_id = header.partition("[CALL_ID]")
    return name.strip(), call_id.strip() or None


_CALLS = NamedJson(separators=("[ARGS]", "{"), name_of=_name_of, json_calls=JsonCalls())

FORMAT = Format(
    names=("mistral",),
    models="Mistral, Mixtral, Magistral, Devstral",
    tools=ToolFormat(sections=(("[TOOL_CALLS]", _CALLS),), signs=(("[TOOL_CALLS]",),)),
    reasoning=ReasoningFormat(("[THINK]",), ("[/THINK]",), signs=(("[THINK]",),)),
    rank=2,
)
