"""What callers of `LLM` and `AsyncLLM` get back. Names are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Logprob:
    """Log probability of one token at one position."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


# One dictionary a position: the chosen token and the top ones, by token id.
PositionLogprobs = dict[int, Logprob]


@dataclass(slots=True)
class CompletionOutput:
    """One of the n answers to a request."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    """`stop`, `length`, `abort`, `error`, or None while it runs."""
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
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    error: str | None = None
    extra: dict[str, object] = field(default_factory=dict)
