"""Cohere Command A and Command R7B."""

from __future__ import annotations

from octavo.entrypoints.parsers.calls import JsonCalls
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

FORMAT = Format(
    names=("cohere_command3", "cohere"),
    models="Command A, Command R7B",
    tools=ToolFormat(
        sections=(("<|START_ACTION|>", JsonCalls(close=("<|END_ACTION|>",))),),
        strays=("<|END_ACTION|>",),
        signs=(("<|START_ACTION|>",),),
    ),
    reasoning=ReasoningFormat(
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>",),
        strays=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        signs=(("<|START_THINKING|>",),),
    ),
    rank=3,
)
