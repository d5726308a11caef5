"""Messages between a front (HTTP, offline) and an engine core."""

from __future__ import annotations

import enum

import msgspec

from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams


class FinishReason(enum.IntEnum):
    """Why an answer ended. `name.lower()` is what clients see."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4

    def __str__(self) -> str:
        return self.name.lower()


class TokenRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """What texts in the parameters of a request are as token ids: the engine has no tokenizer."""

    bad_words: list[list[int]] = []
    """Sequences whose last token may not follow the others."""
    thinking_start: list[int] = []
    """Tokens that begin the reasoning; empty where `thinking_token_budget` is not asked for."""
    thinking_end: list[int] = []


class EngineRequest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One sequence to generate (n > 1 is fanned out by the front).

    `output_token_ids` are tokens already sent to the client: a stream that continues on a new engine carries them.
    `stop_token_ids` is the resolved set of ids that end the answer: the request's own, plus every EOS id of the model
    unless `ignore_eos`. The engine samples with exactly `sampling.seed`, which the front always sets.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    stop_token_ids: list[int] = []
    eos_token_ids: list[int] = []
    arrival_time: float = 0.0
    priority: int = 0
    cache_salt: str | None = None
    output_token_ids: list[int] = []
    pooling: PoolingParams | None = None
    """Set where a vector is wanted and no token: resolved for the model. `sampling` means nothing then."""
    token_rules: TokenRules = TokenRules()
    prompt_embeds: bytes = b""
    """Rows [prompt tokens, hidden size] of little-endian float32 in place of the prompt's ids, which mean nothing then."""


class TokenLogprobs(msgspec.Struct, array_like=True):
    """Log probabilities at one position: the chosen token first, then the top ones in descending order."""

    token_ids: list[int]
    logprobs: list[float]
    rank: int
    """Rank of the chosen token in the whole vocabulary, 1 = most likely."""
    asked_ranks: list[int] = []
    """Ranks of the tokens asked for by id (`logprob_token_ids`), which come last in the other lists."""


class EngineOutput(msgspec.Struct, array_like=True, kw_only=True):
    """What one step brought to one request."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token id that ended the answer, if it was not an EOS; a word where it was a repetition."""
    new_logprobs: list[TokenLogprobs] | None = None
    new_prompt_logprobs: list[TokenLogprobs] | None = None
    """For prompt positions 1..; the first prompt token has none. Sent in order, in pieces when prefill is chunked."""
    num_cached_tokens: int = 0
    error: str | None = None
    events: dict[str, float] | None = None
    """Monotonic seconds of `queued`, `scheduled` (first time only)."""
    error_type: str | None = None
    """Class of `error` in the hierarchy of `lib/errors.py`; None: an internal error."""
    error_param: str | None = None
    """The field of the request at fault."""
    pooled: bytes | None = None
    """Of a pooling request, which ends with it: the vector in little-endian float32."""


class SchedulerStats(msgspec.Struct, array_like=True, kw_only=True):
    """Gauges now, and counters since the previous report."""

    num_running: int = 0
    num_waiting: int = 0
    kv_usage: float = 0.0
    """Share of pages in use, 0..1 (cached but unreferenced pages count as free)."""
    prefix_queries: int = 0
    prefix_hits: int = 0
    """In tokens, as are the queries."""
    num_preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    num_pages: int = 0
    num_shared_pages: int = 0
    """Pages that more than one request refers to, now."""


class EngineOutputs(msgspec.Struct, array_like=True, kw_only=True):
    """All that one step of an engine brought: one frame on the wire."""

    outputs: list[EngineOutput] = []
    stats: SchedulerStats | None = None
    timestamp: float = 0.0
