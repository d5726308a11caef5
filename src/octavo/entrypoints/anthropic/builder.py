"""From the events of an answer to a message and to the events of its stream, made at once."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator
from typing import Any

from octavo.entrypoints.openai.handlers.turns import Piece, Turn
from octavo.entrypoints.parsers.events import (
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)
from octavo.lib.errors import OctavoError

StreamEvent = dict[str, Any]

# Of a block: the delta that fills it, and that delta's field.
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class MessageBuilder:
    """One message on its way."""

    def __init__(self, model: str, turn: Turn) -> None:
        self.message: dict[str, Any] = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": None,
        }
        self._turn = turn
        self._open: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._called = False

    def started(self) -> list[StreamEvent]:
        """The events before the answer; after the engine's first output, so that the usage is known."""
        message = copy.deepcopy(self.message) | {"usage": _usage(self._turn) | {"output_tokens": 0}}
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def add(self, piece: Piece) -> list[StreamEvent]:
        """What a piece of the answer brings; the last one also ends the message.

        Raises:
            OctavoError: the answer was ended from outside.
        """
        events = [event for part in merged(piece.events) for event in self._said(part)]
        return events if piece.finish_reason is None else events + self._ended(piece)

    def _said(self, event: Event) -> Iterator[StreamEvent]:
        match event:
            case ReasoningDelta(text):
                yield from self._into({"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta(text)
            case ContentDelta(text):
                yield from self._into({"type": "text", "text": ""})
                yield self._delta(text)
            case ToolCallStart(_, call_id, name):
                yield from self._close()
                yield self._start({"type": "tool_use", "id": call_id, "name": name, "input": {}})
            case ToolCallArguments(_, text):
                yield self._delta(text)
            case ToolCallEnd():
                self._called = True
                yield from self._close()

    def _into(self, block: dict[str, Any]) -> Iterator[StreamEvent]:
        """Go on with an open block of this type, or open one."""
        if self._open is None or self._open["type"] != block["type"]:
            yield from self._close()
            yield self._start(block)

    def _start(self, block: dict[str, Any]) -> StreamEvent:
        self._open, self._texts = block, []
        self.message["content"].append(block)
        return {"type": "content_block_start", "index": self._index, "content_block": dict(block)}

    def _delta(self, text: str) -> StreamEvent:
        assert self._open is not None
        kind, field = _DELTAS[self._open["type"]]
        self._texts.append(text)
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, field: text}}

    def _close(self) -> Iterator[StreamEvent]:
        if self._open is None:
            return
        text = "".join(self._texts)
        if self._open["type"] == "tool_use":
            self._open["input"] = _arguments(text)
        else:
            self._open[self._open["type"]] = text
        self._open = None
        yield {"type": "content_block_stop", "index": self._index}

    @property
    def _index(self) -> int:
        return len(self.message["content"]) - 1

    def _ended(self, piece: Piece) -> list[StreamEvent]:
        closed = list(self._close())
        stop: dict[str, Any] = {"stop_reason": self._stop_reason(piece), "stop_sequence": None}
        if stop["stop_reason"] == "stop_sequence":
            stop["stop_sequence"] = piece.stop_reason
        usage = _usage(self._turn)
        self.message |= stop | {"usage": usage}
        delta = {"type": "message_delta", "delta": stop, "usage": usage}
        return [*closed, delta, {"type": "message_stop"}]

    def _stop_reason(self, piece: Piece) -> str:
        if piece.finish_reason == "length":
            return "max_tokens"
        if piece.finish_reason != "stop":
            raise OctavoError(f"The answer was ended before it was complete ({piece.finish_reason}).")
        if isinstance(piece.stop_reason, str):
            return "stop_sequence"
        return "tool_use" if self._called else "end_turn"


def _arguments(text: str) -> dict[str, Any]:
    """The input of a call. One that the token limit cut short has none that could be trusted."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _usage(turn: Turn) -> dict[str, Any]:
    """Tokens, those from the prefix cache counted apart as this API does: all input is the sum of the three."""
    return {
        "input_tokens": turn.num_prompt_tokens - turn.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": turn.num_cached_tokens,
        "output_tokens": turn.num_output_tokens,
    }
