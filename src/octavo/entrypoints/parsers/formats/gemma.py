"""FunctionGemma."""

from __future__ import annotations

from octavo.entrypoints.parsers.braces import Braces
from octavo.entrypoints.parsers.format import Format, ToolFormat

FORMAT = Format(
    names=("functiongemma", "gemma"),
    models="FunctionGemma",
    tools=ToolFormat(
        sections=(("<start_function_call>", Braces(quote="<escape>", close=("<end_function_call>",))),),
        strays=("<end_function_call>",),
        signs=(("<start_function_call>",),),
    ),
    rank=3,
)
