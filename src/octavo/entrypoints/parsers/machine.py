"""The engine of all parsers: text in, events out, each character read once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from octavo.entrypoints.parsers.calls import Layout
from octavo.entrypoints.parsers.events import (
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from octavo.entrypoints.parsers.format import ReasoningFormat, ToolFormat
from octavo.entrypoints.parsers.source import SPACE, Malformed, Reading, Source, markers_of

# Spaces that are held back in case a call follows; a model that writes nothing else must not stall its stream.
_HELD_SPACES = 64


def new_call_id() -> str:
    """An id that no other call has."""
    return f"call_{uuid.uuid4().hex[:24]}"


class Text:
    """One kind of text without the spaces at its edges that only set off markers."""

    def __init__(self, tell: Callable[[str], object], *, strip: bool) -> None:
        self._tell = tell
        self._strip = strip
        self._space = ""
        self._begun = self._told = False

    def add(self, text: str) -> None:
        """More of it."""
        whole = self._space + text
        body = whole.rstrip(SPACE)
        self._space = whole[len(body) :]
        if self._strip and not self._begun:
            body = body.lstrip(SPACE)
        if body:
            self._begun = self._told = True
            self._tell(body)
        excess = len(self._space) - _HELD_SPACES
        if excess > 0:
            if self._begun or not self._strip:
                self._tell(self._space[:excess])
            self._space = self._space[excess:]

    def cut(self) -> None:
        """A marker follows: spaces before it, and after it, are its own."""
        self._space, self._begun, self._strip = "", False, True

    def part(self) -> None:
        """Another piece that stands by itself follows: on a line of its own."""
        self.cut()
        if self._told:
            self._space, self._begun = "\n", True

    def end(self) -> None:
        """Nothing follows."""
        if self._space and (self._begun or not self._strip):
            self._tell(self._space)
        self._space = ""


class Machine:
    """Takes one answer apart.

    Args:
        tools: How calls are written; None: there are none.
        reasoning: How reasoning is set off; None: there is none.
        in_reasoning: The answer begins within it.
        schemas: Parameters' schemas by tool name.
        new_id: Makes the ids of calls.
        max_calls: Calls beyond these are dropped (`parallel_tool_calls`: false).
    """

    def __init__(
        self,
        tools: ToolFormat | None,
        reasoning: ReasoningFormat | None,
        *,
        in_reasoning: bool = False,
        schemas: Mapping[str, Any] | None = None,
        new_id: Callable[[], str] = new_call_id,
        max_calls: int | None = None,
    ) -> None:
        self.source = Source()
        self.tools = schemas or {}
        self.has_tools = tools is not None
        self.in_reasoning = in_reasoning
        self._format = tools or ToolFormat()
        self._sections = dict(self._format.sections)
        self._reasoning = reasoning or ReasoningFormat()
        self._new_id = new_id
        self._max_calls = max_calls
        self._events: list[Event] = []
        self._content = Text(lambda text: self._events.append(ContentDelta(text)), strip=in_reasoning)
        self._thought = Text(lambda text: self._events.append(ReasoningDelta(text)), strip=True)
        self._index = -1
        self._open = self._dropping = False
        channels = self._format.channels or self._reasoning.channels
        self._run = self._answer() if channels is None else channels.read(self)
        self._done = False

    def feed(self, text: str) -> list[Event]:
        """What more text settles."""
        self.source.give(text)
        return self._step()

    def finish(self) -> list[Event]:
        """What was held back, now that no more comes."""
        self.source.ended = True
        return self._step()

    def _step(self) -> list[Event]:
        if not self._done:
            try:
                next(self._run)
            except StopIteration:
                self._done = True
        events, self._events = self._events, []
        return events

    # What layouts tell (see `Calls`).

    def start(self, name: str, call_id: str | None = None) -> None:
        """A call begins."""
        self.source.kept = None
        self._content.cut()
        self._open = True
        self._dropping = self._max_calls is not None and self._index + 1 >= self._max_calls
        if not self._dropping:
            self._index += 1
            self._events.append(ToolCallStart(self._index, call_id or self._new_id(), name))

    def arguments(self, text: str) -> None:
        """More of its arguments."""
        if text and not self._dropping:
            self._events.append(ToolCallArguments(self._index, text))

    def end(self) -> None:
        """It is whole."""
        if not self._dropping:
            self._events.append(ToolCallEnd(self._index))
        self._open = self._dropping = False
        self.source.kept = []

    # What channels tell (see `Messages`).

    def content(self) -> Callable[[str], object]:
        """A message to the user begins."""
        self._content.part()
        return self._content.add

    def thought(self) -> Callable[[str], object]:
        """A message of reasoning begins."""
        self.in_reasoning = True
        self._thought.part()
        return self._thought.add

    def said(self) -> None:
        """The message has ended."""
        self.in_reasoning = False
        self._content.cut()
        self._thought.cut()

    # The answer's parts.

    def _answer(self) -> Reading[None]:
        reasoning = self._reasoning
        markers = markers_of(*self._sections, *reasoning.starts, *self._format.strays, *reasoning.strays)
        if self.in_reasoning:
            yield from self._think()
        bare, fresh = self._format.bare, True
        while True:
            if bare is not None and fresh and (yield from self._at_bare(bare[0])):
                yield from self._calls("", bare[1])
            found = yield from self.source.until(markers, self._content.add)
            if found is None:
                self._content.end()
                return
            fresh = found not in self._sections
            if found in self._sections:
                yield from self._calls(found, self._sections[found])
            elif found in reasoning.starts:
                self._content.cut()
                self.in_reasoning = True
                yield from self._think()
            elif found in reasoning.strays:
                self._content.cut()

    def _at_bare(self, first: str) -> Reading[bool]:
        """Whether the next character that is no space may begin a call."""
        source = self.source
        while True:
            mark = yield from source.peek()
            if not mark or mark not in SPACE:
                return bool(mark) and mark in first
            self._content.add(source.take(1))

    def _think(self) -> Reading[None]:
        """Reasoning, up to its end marker (or a call, where the format has it so)."""
        reasoning = self._reasoning
        calls = tuple(self._sections) if reasoning.ended_by_calls else ()
        # A start that the prompt has written already may be written again.
        markers = markers_of(*reasoning.starts, *reasoning.ends, *calls)
        while True:
            found = yield from self.source.until(markers, self._thought.add)
            if found is None:
                self._thought.end()
                return
            if found not in reasoning.starts:
                break
        self.in_reasoning = False
        self._thought.cut()
        self._content.cut()
        if found in calls:
            yield from self._calls(found, self._sections[found])

    def _calls(self, marker: str, layout: Layout) -> Reading[None]:
        """Calls; what turns out to be none is content."""
        self.source.kept = [marker]
        try:
            yield from layout.read(self)
        except Malformed:
            if self._open:
                # It was told already: what came of it stays, and what follows is content.
                self._open = self._dropping = False
            elif self.source.kept is not None:
                self._content.add("".join(self.source.kept))
        finally:
            self.source.kept = None
