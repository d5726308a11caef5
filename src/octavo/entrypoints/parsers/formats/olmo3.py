"""OLMo 3: calls in Python, one a line."""

from __future__ import annotations

from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat
from octavo.entrypoints.parsers.pythonic import Pythonic

FORMAT = Format(
    names=("olmo3",),
    models="OLMo 3",
    tools=ToolFormat(
        sections=(("<function_calls>", Pythonic(bracketed=False, close=("</function_calls>",))),),
        strays=("</function_calls>",),
        signs=(("<function_calls>",),),
    ),
    reasoning=ReasoningFormat(("<think>",), ("</think>",), signs=(("<function_calls>", "<think>"),)),
    rank=2,
)
