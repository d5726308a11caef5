"""Random answers as parser events, cut into random pieces, for the builders of every face."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from octavo.entrypoints.openai.handlers.turns import Piece
from octavo.entrypoints.parsers.events import (
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)

LETTERS = 'ab "\\{}é日🙂\n'


def counts() -> Any:
    """A turn's counts."""
    return SimpleNamespace(
        num_prompt_tokens=9, num_cached_tokens=4, num_output_tokens=7, num_reasoning_tokens=2
    )


def random_events(rng: random.Random, *, cut: bool) -> list[Event]:
    """Reasoning, then words and calls in any order; `cut`: as the token limit leaves it, perhaps within a call."""
    events: list[Event] = [ReasoningDelta(_text(rng)) for _ in range(rng.randrange(3))]
    for index in range(rng.randrange(4)):
        events += [ContentDelta(_text(rng)) for _ in range(rng.randrange(4))]
        events.append(ToolCallStart(index, f"call_{index}", f"f{index}"))
        events += [ToolCallArguments(index, part) for part in ('{"a":', ' "é', '"', "}")]
        events.append(ToolCallEnd(index))
    events += [ContentDelta(_text(rng)) for _ in range(rng.randrange(3))]
    return events[: rng.randrange(len(events) + 1)] if cut else events


def random_pieces(rng: random.Random, events: list[Event], finish_reason: str) -> list[Piece]:
    """The events cut into pieces, some of them empty; the last one finishes."""
    pieces: list[Piece] = []
    rest = list(events)
    while rest:
        size = rng.randrange(4)
        pieces.append(Piece(rest[:size], [], None, None))
        rest = rest[size:]
    return [*pieces, Piece([], [], finish_reason, None)]


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randrange(1, 5)))
