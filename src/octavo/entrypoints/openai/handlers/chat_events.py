"""From parser events to the messages and deltas of chat completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octavo.entrypoints.openai.protocol.chat import AssistantMessage, FunctionCall, MessageToolCall
from octavo.entrypoints.parsers.events import (
    ContentDelta,
    Event,
    ParsedAnswer,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
    merged,
)


def deltas(events: Iterable[Event]) -> list[dict[str, Any]]:
    """A delta an event; a call's id, type and name are in its first one only."""
    return [delta for delta in map(_delta, merged(events)) if delta is not None]


def _delta(event: Event) -> dict[str, Any] | None:
    match event:
        case ContentDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning": text, "reasoning_content": text}
        case ToolCallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return _call_delta({"index": index, "id": call_id, "type": "function", "function": function})
        case ToolCallArguments(index, text):
            return _call_delta({"index": index, "function": {"arguments": text}})
    return None


def _call_delta(call: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [call]}


def message(parsed: ParsedAnswer, echo: str, role: str) -> AssistantMessage:
    """The whole message; with calls and no words, it has no content."""
    calls = [
        MessageToolCall(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments))
        for call in parsed.tool_calls
    ]
    content = echo + parsed.content
    return AssistantMessage(
        role=role,
        content=content or None if calls else content,
        reasoning=parsed.reasoning or None,
        reasoning_content=parsed.reasoning or None,
        tool_calls=calls or None,
    )
