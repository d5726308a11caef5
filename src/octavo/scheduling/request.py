"""A request as the scheduler sees it: known tokens, how many of them are computed, and what ends the answer."""

from __future__ import annotations

import enum
from hashlib import sha256

from octavo.scheduling.kv.prefix_index import root_hash
from octavo.scheduling.repetition import RepetitionWatch
from octavo.types.engine import EngineRequest, FinishReason
from octavo.types.step import NewRequest


class RequestStatus(enum.Enum):
    """Where a request stands."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


class Request:
    """Scheduling state of one sequence.

    Args:
        source: The request as it came in.
        sequence: Its number in the order of arrival.
        max_total_tokens: Prompt and answer together end here with `FinishReason.LENGTH`.
        now: Time of arrival, in monotonic seconds.
    """

    __slots__ = (
        "capacity",
        "draws_plainly",
        "eos_token_ids",
        "events",
        "max_total_tokens",
        "min_stop_length",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_indexed_pages",
        "num_prompt_logprobs",
        "num_prompt_tokens",
        "page_hashes",
        "pages",
        "pooling",
        "priority",
        "prompt_embeds",
        "repetition",
        "request_id",
        "resident",
        "sampling",
        "sequence",
        "status",
        "stop_token_ids",
        "token_ids",
        "token_rules",
        "wants_prompt_logprobs",
    )

    def __init__(self, source: EngineRequest, *, sequence: int, max_total_tokens: int, now: float) -> None:
        self.request_id = source.request_id
        self.sampling = source.sampling
        self.pooling = source.pooling
        self.draws_plainly = source.pooling is None and source.sampling.draws_plainly
        self.token_rules = source.token_rules
        self.priority = source.priority
        self.sequence = sequence
        self.status = RequestStatus.WAITING
        self.resident = False  # whether the executor holds state for it
        self.events: dict[str, float] | None = {"queued": now}  # None once sent
        self._init_tokens(source, max_total_tokens)
        self._init_pages(source)

    def _init_tokens(self, source: EngineRequest, max_total_tokens: int) -> None:
        self.token_ids = [*source.prompt_token_ids, *source.output_token_ids]
        self.num_prompt_tokens = len(source.prompt_token_ids)
        self.num_computed_tokens = 0
        self.max_total_tokens = max_total_tokens
        self.stop_token_ids = frozenset(source.stop_token_ids)
        self.eos_token_ids = frozenset(source.eos_token_ids)
        # A stop id counts only where at least min_tokens tokens of the answer stand before it.
        self.min_stop_length = self.num_prompt_tokens + source.sampling.min_tokens + 1
        self.repetition = RepetitionWatch.of(source.sampling.repetition_detection, source.output_token_ids)
        self.wants_prompt_logprobs = source.sampling.prompt_logprobs is not None
        # A stream that continues elsewhere got them before its first token.
        self.num_prompt_logprobs = self.num_prompt_tokens - 1 if source.output_token_ids else 0

    def _init_pages(self, source: EngineRequest) -> None:
        """All of these belong to the KV manager."""
        self.pages: list[list[int]] = []
        self.capacity = 0  # tokens that `pages` has room for, from position 0 on
        self.num_indexed_pages = 0
        self.num_cached_tokens: int | None = (
            None  # prompt tokens found in the prefix cache at first; None: not yet run
        )
        self.prompt_embeds = source.prompt_embeds
        self.page_hashes = [root_hash(_key_extras(source))]

    @property
    def num_remaining_tokens(self) -> int:
        """Known tokens that are not computed yet."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens of the answer so far, those of an earlier engine included."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def reads_prefix_cache(self) -> bool:
        """Log probabilities of prompt positions need these positions computed, and so do most ways of pooling."""
        if self.pooling is not None:
            return not self.pooling.skip_reading_prefix_cache
        if self.sampling.skip_reading_prefix_cache:
            return False
        return not self.wants_prompt_logprobs or self.num_prompt_logprobs >= self.num_prompt_tokens - 1

    def append(self, token_id: int) -> FinishReason | None:
        """Add a sampled token; says whether, and why, the answer ends with it."""
        self.token_ids.append(token_id)
        length = len(self.token_ids)
        if token_id in self.stop_token_ids and length >= self.min_stop_length:
            return FinishReason.STOP
        if self.repetition.caught(token_id) and length >= self.min_stop_length:
            return FinishReason.REPETITION
        return FinishReason.LENGTH if length >= self.max_total_tokens else None

    def stop_reason(self, reason: FinishReason | None) -> int | str | None:
        """The stop id that ended the answer, where it is one of the request's own and no EOS; or vLLM's word for a loop."""
        if reason is FinishReason.REPETITION:
            return "repetition_detected"
        last = self.token_ids[-1]
        own = last in self.stop_token_ids and last not in self.eos_token_ids
        return last if reason is FinishReason.STOP and own else None

    def as_new(self) -> NewRequest:
        """What the executor needs to take the request in."""
        return NewRequest(
            request_id=self.request_id,
            token_ids=list(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            num_computed_tokens=self.num_computed_tokens,
            block_ids=[list(table) for table in self.pages],
            sampling=self.sampling,
            stop_token_ids=sorted(self.stop_token_ids),
            pooling=self.pooling,
            token_rules=self.token_rules,
            prompt_embeds=self.prompt_embeds,
        )


def _key_extras(source: EngineRequest) -> dict[str, str]:
    """What beside the tokens decides about keys and values, or keeps them apart."""
    extras = {} if source.cache_salt is None else {"salt": source.cache_salt}
    if source.prompt_embeds:
        extras["prompt_embeds"] = sha256(source.prompt_embeds).hexdigest()
    return extras
