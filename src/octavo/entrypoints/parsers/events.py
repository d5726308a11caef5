"""What a parser says about an answer, piece by piece. Every face builds its bodies from these events alone.

A whole answer is the fold of its events (`collect`), so a stream and a plain answer cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of what the user is told."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks first."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call begins. Calls of one answer are numbered from 0; one may begin only after the last one ended."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments: joined, they are a JSON text (cut short where the answer was)."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The call is whole. A call that the answer's end cut short has none."""

    index: int


Event = ContentDelta | ReasoningDelta | ToolCallStart | ToolCallArguments | ToolCallEnd


class AnswerParser(Protocol):
    """Takes one answer apart as it comes."""

    @property
    def reasoning_tokens(self) -> int:
        """How many of the tokens so far were reasoning."""
        ...

    def feed(self, text: str, token_ids: Sequence[int]) -> list[Event]:
        """What the next piece settles.

        Args:
            text: As the engine spells the answer. May lag behind the tokens (a stop string may still begin there).
            token_ids: All new tokens of the answer.
        """
        ...

    def finish(self) -> list[Event]:
        """No more comes: what was held back."""
        ...


def parsed(parser: AnswerParser, text: str, token_ids: Sequence[int], *, ended: bool) -> list[Event]:
    """What one output of the engine settles; at the answer's end also what was held back."""
    events = parser.feed(text, token_ids)
    return events + parser.finish() if ended else events


class PassThrough:
    """Every text is content."""

    reasoning_tokens = 0

    def feed(self, text: str, token_ids: Sequence[int]) -> list[Event]:
        """The text as it is."""
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[Event]:
        """Nothing was held back."""
        return []


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One whole call."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """A whole answer. Texts that were not there are empty."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def collect(events: Iterable[Event]) -> ParsedAnswer:
    """What the events of one answer add up to."""
    content: list[str] = []
    reasoning: list[str] = []
    starts: list[ToolCallStart] = []
    arguments: list[list[str]] = []
    for event in events:
        match event:
            case ContentDelta(text):
                content.append(text)
            case ReasoningDelta(text):
                reasoning.append(text)
            case ToolCallStart():
                starts.append(event)
                arguments.append([])
            case ToolCallArguments(index, text):
                arguments[index].append(text)
            case ToolCallEnd():
                pass
    calls = (
        ToolCall(start.id, start.name, "".join(parts)) for start, parts in zip(starts, arguments, strict=True)
    )
    return ParsedAnswer("".join(content), "".join(reasoning), tuple(calls))


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbours of one kind joined."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case (ContentDelta(before), ContentDelta(text)):
                joined[-1] = ContentDelta(before + text)
            case (ReasoningDelta(before), ReasoningDelta(text)):
                joined[-1] = ReasoningDelta(before + text)
            case (ToolCallArguments(index, before), ToolCallArguments(_, text)):
                joined[-1] = ToolCallArguments(index, before + text)
            case _:
                joined.append(event)
    return joined
