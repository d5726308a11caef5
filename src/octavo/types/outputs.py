"""What callers of `LLM` and `AsyncLLM` get back. Names are vLLM's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import overload


@dataclass(slots=True)
class Logprob:
    """Log probability of one token at one position."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


# One dictionary a position: the chosen token and the top ones, by token id.
PositionLogprobs = dict[int, Logprob]


class FlatLogprobs:
    """Log probabilities of many positions in a few long lists: much less memory, and less for the collector to look at.

    Reads like the list of dictionaries that it stands for; a dictionary is made when it is asked for. A position without any
    (the first one of a prompt) is an empty dictionary. Names are vLLM's.
    """

    __slots__ = ("decoded_tokens", "end_indices", "logprobs", "ranks", "start_indices", "token_ids")

    def __init__(self) -> None:
        self.start_indices: list[int] = []
        """Where each position begins in the lists below."""
        self.end_indices: list[int] = []
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.ranks: list[int | None] = []
        self.decoded_tokens: list[str | None] = []

    def append(self, position: PositionLogprobs | None) -> None:
        """Add a position."""
        self.start_indices.append(len(self.token_ids))
        for token, entry in (position or {}).items():
            self.token_ids.append(token)
            self.logprobs.append(entry.logprob)
            self.ranks.append(entry.rank)
            self.decoded_tokens.append(entry.decoded_token)
        self.end_indices.append(len(self.token_ids))

    def add_to_chosen(self, position: int, text: str) -> None:
        """Let the chosen token of a position have more text."""
        first = self.start_indices[position]
        self.decoded_tokens[first] = (self.decoded_tokens[first] or "") + text

    def __len__(self) -> int:
        return len(self.start_indices)

    @overload
    def __getitem__(self, index: int) -> PositionLogprobs: ...

    @overload
    def __getitem__(self, index: slice) -> FlatLogprobs: ...

    def __getitem__(self, index: int | slice) -> PositionLogprobs | FlatLogprobs:
        if isinstance(index, slice):
            part = FlatLogprobs()
            for position in range(*index.indices(len(self))):
                part.append(self[position])
            return part
        rows = range(self.start_indices[index], self.end_indices[index])
        return {
            self.token_ids[row]: Logprob(self.logprobs[row], self.ranks[row], self.decoded_tokens[row])
            for row in rows
        }

    def __iter__(self) -> Iterator[PositionLogprobs]:
        return (self[position] for position in range(len(self)))

    def __add__(self, other: FlatLogprobs) -> FlatLogprobs:
        joined = self[:]
        for position in other:
            joined.append(position)
        return joined

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlatLogprobs) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


SampleLogprobs = list[PositionLogprobs] | FlatLogprobs
"""Of the tokens of an answer."""
PromptPositions = list[PositionLogprobs | None] | FlatLogprobs
"""Of the tokens of a prompt, the first of which has none."""


@dataclass(slots=True)
class CompletionOutput:
    """One of the n answers to a request."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: SampleLogprobs | None = None
    finish_reason: str | None = None
    """`stop`, `length`, `abort`, `error`, `repetition`, or None while it runs."""
    stop_reason: int | str | None = None
    """The stop string or stop token id that ended the answer; None for EOS and for length."""

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Times of a request in monotonic seconds; None where that point was not reached."""

    arrival_time: float
    queued_time: float | None = None
    scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """A request's answers so far (cumulative), since the last one (delta), or at its end (final only)."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: PromptPositions | None = None
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    error: str | None = None
    extra: dict[str, object] = field(default_factory=dict)
