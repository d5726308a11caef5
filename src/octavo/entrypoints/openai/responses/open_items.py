"""Output items while they grow: what each says when it opens, gets more text and closes.

An item's `body` is the object that the response holds; the text is joined once, when the item closes.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Sequence
from typing import Any

StreamEvent = dict[str, Any]


def new_id(prefix: str) -> str:
    """An id that nobody can guess."""
    return f"{prefix}_{uuid.uuid4().hex}"


class _TextItem:
    """An item with one part of text."""

    prefix: str
    event: str
    fields: dict[str, Any]
    part: dict[str, Any]

    def __init__(self, index: int) -> None:
        self.index = index
        self.body: dict[str, Any] = {"id": new_id(self.prefix)} | copy.deepcopy(self.fields)
        self.body |= {"status": "in_progress", "content": []}
        self._texts: list[str] = []

    def opened(self) -> list[StreamEvent]:
        added = {"type": "response.output_item.added", "output_index": self.index}
        added["item"] = copy.deepcopy(self.body)
        part = copy.deepcopy(self.part)
        self.body["content"].append(part)
        return [added, self._event("response.content_part.added", part=copy.deepcopy(part))]

    def delta(self, text: str) -> list[StreamEvent]:
        """More text."""
        self._texts.append(text)
        return [self._event(f"{self.event}.delta", delta=text)]

    def closed(self, status: str) -> list[StreamEvent]:
        (part,) = self.body["content"]
        part["text"] = "".join(self._texts)
        self.body["status"] = status
        return [
            self._event(f"{self.event}.done", text=part["text"]),
            self._event("response.content_part.done", part=copy.deepcopy(part)),
            {
                "type": "response.output_item.done",
                "output_index": self.index,
                "item": copy.deepcopy(self.body),
            },
        ]

    def _event(self, kind: str, **fields: Any) -> StreamEvent:
        place = {"item_id": self.body["id"], "output_index": self.index, "content_index": 0}
        return {"type": kind} | place | fields


class ReasoningItem(_TextItem):
    """What the model thinks first."""

    prefix = "rs"
    event = "response.reasoning_text"
    fields = {"type": "reasoning", "summary": []}
    part = {"type": "reasoning_text", "text": ""}


class MessageItem(_TextItem):
    """What the user is told."""

    prefix = "msg"
    event = "response.output_text"
    fields = {"type": "message", "role": "assistant"}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}

    def delta(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> list[StreamEvent]:
        """More text, with the log probabilities of its tokens."""
        self.body["content"][0]["logprobs"].extend(logprobs)
        (event,) = super().delta(text)
        return [event | {"logprobs": list(logprobs)}]

    def closed(self, status: str) -> list[StreamEvent]:
        """Its text's last event tells all log probabilities again."""
        done, *rest = super().closed(status)
        return [done | {"logprobs": list(self.body["content"][0]["logprobs"])}, *rest]


class CallItem:
    """A call of a function."""

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.body: dict[str, Any] = {
            "id": new_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": name,
            "arguments": "",
        }
        self._texts: list[str] = []

    def opened(self) -> list[StreamEvent]:
        item = copy.deepcopy(self.body)
        return [{"type": "response.output_item.added", "output_index": self.index, "item": item}]

    def delta(self, text: str) -> list[StreamEvent]:
        self._texts.append(text)
        return [self._event("delta", delta=text)]

    def closed(self, status: str) -> list[StreamEvent]:
        self.body |= {"arguments": "".join(self._texts), "status": status}
        item = copy.deepcopy(self.body)
        return [
            self._event("done", name=self.body["name"], arguments=self.body["arguments"]),
            {"type": "response.output_item.done", "output_index": self.index, "item": item},
        ]

    def _event(self, kind: str, **fields: Any) -> StreamEvent:
        place = {"item_id": self.body["id"], "output_index": self.index}
        return {"type": f"response.function_call_arguments.{kind}"} | place | fields


Item = ReasoningItem | MessageItem | CallItem
