"""GLM 4.5 to 4.7."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import KeysAndValues
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_CALLS = KeysAndValues(
    key=("<arg_key>", "</arg_key>"), value=("<arg_value>", "</arg_value>"), close=("</tool_call>",)
)

FORMAT = Format(
    names=("glm45", "glm47"),
    models="GLM 4.5, 4.6, 4.7",
    tools=ToolFormat(
        sections=(("<tool_call>", _CALLS),), strays=("</tool_call>",), signs=(("<arg_key>", "<arg_value>"),)
    ),
    reasoning=ReasoningFormat(("<think>",), ("</think>",), signs=(("<arg_key>", "<think>"),)),
    rank=4,
)
