"""gpt-oss: messages in channels (harmony). Either flag sets both, as calls and reasoning are told apart by one header."""

from __future__ import annotations

from octavo.entrypoints.parsers.channels import Channels
from octavo.entrypoints.parsers.format import Format, ReasoningFormat, ToolFormat

_HARMONY = Channels(
    start="<|start|>",
    channel="<|channel|>",
    message="<|message|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    thought="analysis",
    functions="functions.",
)

FORMAT = Format(
    names=("openai", "openai_gptoss", "gpt_oss"),
    models="gpt-oss",
    tools=ToolFormat(channels=_HARMONY, signs=(("<|channel|>", "<|message|>"),)),
    reasoning=ReasoningFormat(channels=_HARMONY, signs=(("<|channel|>", "<|message|>"),)),
    rank=5,
)
