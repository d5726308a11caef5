"""Llama 3.1 to 3.3: the answer is the call."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ToolFormat

_CALLS = JsonCalls(known_only=True)

FORMAT = Format(
    names=("llama3_json", "llama4_json"),
    models="Llama 3.1, 3.2, 3.3",
    tools=ToolFormat(
        sections=(("<|python_tag|>", JsonCalls()),),
        bare=("{[", _CALLS),
        signs=(("<|start_header_id|>", "parameters"), ("<|python_tag|>",)),
    ),
    rank=1,
)
