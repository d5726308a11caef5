"""From the events of an answer to a response object and to the events of its stream.

Both are made here at once: a whole answer is what the stream's events fold to, with the same ids.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator
from typing import Any

from octavo.entrypoints.openai.handlers.turns import Piece, Turn
from octavo.entrypoints.openai.responses.open_items import CallItem, Item, MessageItem, ReasoningItem
from octavo.entrypoints.parsers.events import (
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)
from octavo.lib.errors import OctavoError, OverloadedError

StreamEvent = dict[str, Any]

FINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})


class ResponseBuilder:
    """One response on its way.

    Args:
        response: The response object without an answer; owned by this builder from now on.
        turn: Where the counts for `usage` come from.
    """

    def __init__(self, response: dict[str, Any], turn: Turn) -> None:
        self.response = response
        self._turn = turn
        self._sequence_number = 0
        self._item: Item | None = None
        self._logprobs: list[dict[str, Any]] = []

    def created(self) -> list[StreamEvent]:
        """The events before anything runs."""
        events = [self._lifecycle("created")]
        if self.response["status"] == "queued":
            events.append(self._lifecycle("queued"))
        return events

    def in_progress(self) -> list[StreamEvent]:
        """The event of an answer that has begun."""
        self.response["status"] = "in_progress"
        return [self._lifecycle("in_progress")]

    def add(self, piece: Piece) -> list[StreamEvent]:
        """What a piece of the answer brings; the last one also ends the response."""
        self._logprobs.extend(piece.logprobs)
        said = [event for part in merged(piece.events) for event in self._said(part)]
        said.extend(self._with_what_spells_nothing())
        self._number(said)
        return said + self._ended(piece.finish_reason) if piece.finish_reason is not None else said

    def failed(self, error: OctavoError) -> list[StreamEvent]:
        """End it for an error."""
        code = "rate_limit_exceeded" if isinstance(error, OverloadedError) else "server_error"
        self.response["error"] = {"code": code, "message": error.message}
        return self._closed("incomplete") + self._end_as("failed")

    def cancelled(self) -> list[StreamEvent]:
        """End it because somebody asked for that; OpenAI's streams have no event of that name."""
        events = self._closed("incomplete")
        self._end_as("cancelled")
        return events

    # -- inside -------------------------------------------------------------------------------------------------------

    def _said(self, event: Event) -> Iterator[StreamEvent]:
        match event:
            case ReasoningDelta(text):
                yield from self._into(ReasoningItem)
                yield from self._current.delta(text)
            case ContentDelta(text):
                yield from self._into(MessageItem)
                yield from self._text(text)
            case ToolCallStart(_, call_id, name):
                yield from self._close("completed")
                yield from self._open(CallItem(self._next_index, call_id, name))
            case ToolCallArguments(_, text):
                yield from self._current.delta(text)
                self._logprobs.clear()
            case ToolCallEnd():
                yield from self._close("completed")

    @property
    def _current(self) -> Item:
        assert self._item is not None
        return self._item

    @property
    def _next_index(self) -> int:
        return len(self.response["output"])

    def _into(self, kind: type[ReasoningItem] | type[MessageItem]) -> Iterator[StreamEvent]:
        """Go on with an open item of this kind, or open one."""
        if not isinstance(self._item, kind):
            yield from self._close("completed")
            yield from self._open(kind(self._next_index))

    def _open(self, item: Item) -> Iterator[StreamEvent]:
        self._item = item
        self.response["output"].append(item.body)
        yield from item.opened()

    def _close(self, status: str) -> Iterator[StreamEvent]:
        if self._item is not None:
            yield from self._item.closed(status)
            self._item = None

    def _text(self, text: str) -> list[StreamEvent]:
        """More of the open message, with the log probabilities that came since its last text."""
        item = self._current
        assert isinstance(item, MessageItem)
        events = item.delta(text, self._logprobs)
        self._logprobs = []
        return events

    def _with_what_spells_nothing(self) -> list[StreamEvent]:
        """Log probabilities of tokens of an open message that brought no text (yet)."""
        return self._text("") if self._logprobs and isinstance(self._item, MessageItem) else []

    def _ended(self, finish_reason: str) -> list[StreamEvent]:
        """Close what is open; an answer without anything is an empty message."""
        opened: list[StreamEvent] = []
        if not self.response["output"]:
            opened = list(self._into(MessageItem))
            self._number(opened)
        cut = finish_reason == "length"
        if cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        whole = finish_reason in ("stop", "length")
        status = "incomplete" if cut else "completed" if whole else "failed"
        if status == "failed":
            message = f"The answer was ended before it was complete ({finish_reason})."
            self.response["error"] = {"code": "server_error", "message": message}
        closed = self._closed("completed" if status == "completed" else "incomplete")
        return opened + closed + self._end_as(status)

    def _closed(self, status: str) -> list[StreamEvent]:
        events = list(self._close(status))
        self._number(events)
        return events

    def _end_as(self, status: str) -> list[StreamEvent]:
        self.response |= {"status": status, "usage": _usage(self._turn)}
        if status == "completed":
            self.response["completed_at"] = int(time.time())
        return [self._lifecycle(status)]

    def _lifecycle(self, name: str) -> StreamEvent:
        event: StreamEvent = {"type": f"response.{name}", "response": copy.deepcopy(self.response)}
        self._number([event])
        return event

    def _number(self, events: Iterable[StreamEvent]) -> None:
        for event in events:
            event["sequence_number"] = self._sequence_number
            self._sequence_number += 1


def _usage(turn: Turn) -> dict[str, Any]:
    return {
        "input_tokens": turn.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": turn.num_cached_tokens, "cache_write_tokens": 0},
        "output_tokens": turn.num_output_tokens,
        "output_tokens_details": {"reasoning_tokens": turn.num_reasoning_tokens},
        "total_tokens": turn.num_prompt_tokens + turn.num_output_tokens,
    }
