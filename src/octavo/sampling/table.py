"""The sampling side of the persistent batch: one slot a request, columns for what every row has, objects for the rest."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops import token_bitmask
from octavo.ops.decode import DrawInputs
from octavo.sampling.edits import (
    Entries,
    Penalties,
    PenaltyRow,
    TokenMasks,
    gather_entries,
    gather_masks,
    gather_penalties,
)
from octavo.sampling.history import TokenHistory
from octavo.sampling.philox import UniformTable
from octavo.sampling.processors import ProcessorRow
from octavo.sampling.rules import BadWords, ThinkingBudget
from octavo.types.engine import TokenRules
from octavo.types.sampling_params import SamplingParams

NO_LOGPROBS = -1
_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """What the sampler needs for R rows of logits. Row i belongs to the i-th slot that was asked for."""

    all_greedy: bool
    temperature: torch.Tensor
    """[R] float32, as are top_p and min_p; 0 is greedy."""
    top_k: torch.Tensor
    """[R] int32, 0 is off."""
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniform: torch.Tensor
    """[R] float64 in [0, 1)."""
    num_logprobs: list[int]
    """[R] top log probabilities wanted, `NO_LOGPROBS` for none."""
    bias: Entries | None
    banned: Entries | None
    penalties: Penalties | None
    masks: TokenMasks | None = None
    """Rows that have only some tokens to choose from."""
    forced: Sequence[tuple[int, int]] = ()
    """(row, id): this token has to come in that row."""
    asked: Sequence[torch.Tensor | None] = ()
    """[R] ids whose log probabilities are wanted, [n] int64; empty where no row wants any."""
    processor_rows: Sequence[ProcessorRow] = ()
    """[R], or none where there are no processors."""
    grammar: TokenMasks | None = None
    """Rows whose answers have a grammar, and what may come there."""

    @property
    def edits_logits(self) -> bool:
        """Whether any row's logits are changed before sampling."""
        edits = (self.bias, self.banned, self.penalties, self.masks, self.grammar)
        return any(one is not None for one in edits) or bool(self.forced or self.processor_rows)

    @property
    def wants_logprobs(self) -> bool:
        """Whether any row wants log probabilities."""
        return any(count != NO_LOGPROBS for count in self.num_logprobs)


class Observer(Protocol):
    """Is told the tokens of one request's answer."""

    def extend(self, tokens: Iterable[int], /) -> None:
        """More of them."""


class RequestSampling:
    """What one request asked for, beyond the plain columns.

    Args:
        params: Its parameters.
        prompt: Tokens of the prompt.
        output: Tokens of the answer so far.
        banned: [n] ids that `min_tokens` holds back.
        rules: What texts in the parameters are as tokens.
        vocab_size: Columns of the logits.
    """

    __slots__ = (
        "asked", "bad_words", "banned", "bias", "history", "mask", "min_tokens", "params", "processor_row", "thinking"
    )  # fmt: skip

    def __init__(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        output: Sequence[int],
        banned: NDArray[np.int64],
        rules: TokenRules,
        vocab_size: int,
    ) -> None:
        self.params = params
        self.history = TokenHistory(prompt, output) if _penalizes(params) else None
        self.min_tokens = params.min_tokens
        self.banned = banned
        bias = params.logit_bias or {}
        self.bias = (
            np.fromiter(bias.keys(), np.int64, len(bias)),
            np.fromiter(bias.values(), np.float32, len(bias)),
        )
        allowed = params.allowed_token_ids
        self.mask = token_bitmask(allowed, vocab_size) if allowed else None
        """[W] int32: the tokens it may have at all."""
        self.asked = _tensor_of_ids(params.logprob_token_ids)
        self.bad_words = BadWords(rules.bad_words, output, vocab_size) if rules.bad_words else None
        self.thinking: ThinkingBudget | None = None
        if params.thinking_token_budget is not None and rules.thinking_end:
            budget, marks = params.thinking_token_budget, (rules.thinking_start, rules.thinking_end)
            self.thinking = ThinkingBudget(budget, *marks, prompt, output)
        self.processor_row: ProcessorRow | None = None

    @property
    def observers(self) -> list[Observer]:
        """Who has to know its tokens."""
        output = None if self.processor_row is None else self.processor_row.output
        return [one for one in (self.history, self.bad_words, self.thinking, output) if one is not None]

    def bans(self, num_output: int) -> NDArray[np.int64]:
        """[n] ids that may not come after so many generated tokens."""
        held_back = self.banned if num_output < self.min_tokens else _NO_IDS
        return held_back if self.bad_words is None else np.concatenate((held_back, self.bad_words.banned()))

    def penalty_row(self, row: int) -> PenaltyRow | None:
        """Its penalties as row `row` of the batch, or None."""
        if self.history is None:
            return None
        params = self.params
        return PenaltyRow(
            row, self.history, params.repetition_penalty, params.frequency_penalty, params.presence_penalty
        )


class SamplingTable:
    """Sampling state of all requests of the persistent batch.

    Args:
        num_slots: Requests at a time.
        vocab_size: Columns of the logits; what `logprobs=-1` stands for.
        has_processors: Whether logits processors have to see every row.
    """

    def __init__(self, num_slots: int, vocab_size: int, *, has_processors: bool = False) -> None:
        self._vocab_size = vocab_size
        self._has_processors = has_processors
        self._serials = itertools.count()
        self._temperature = np.zeros(num_slots, np.float32)
        self._top_k = np.zeros(num_slots, np.int32)
        self._top_p = np.ones(num_slots, np.float32)
        self._min_p = np.zeros(num_slots, np.float32)
        self._num_logprobs = np.full(num_slots, NO_LOGPROBS, np.int64)
        self._draws_plainly = np.zeros(num_slots, np.bool_)
        self._num_output = np.zeros(num_slots, np.int64)
        self._uniforms = UniformTable(num_slots)
        self._requests: dict[int, RequestSampling] = {}
        self._observers: dict[int, list[Observer]] = {}
        self._drawn: tuple[NDArray[np.int64], DrawInputs | None] | None = None
        """The slots that were last asked for by `draw`, and its answer; None once any slot has changed."""

    def add(
        self,
        slot: int,
        request_id: str,
        params: SamplingParams,
        prompt: Sequence[int],
        output: Sequence[int],
        stop_token_ids: Sequence[int],
        rules: TokenRules = TokenRules(),  # noqa: B008 - frozen
    ) -> None:
        """Fill a slot. `output` are tokens generated before a preemption or restart."""
        self._drawn = None
        banned = np.unique(np.array(stop_token_ids, np.int64))
        # An id that the head does not have cannot be sampled: nothing to hold back, and no reason to fail the batch.
        banned = banned[banned < self._vocab_size]
        request = RequestSampling(params, prompt, output, banned, rules, self._vocab_size)
        if self._has_processors:
            request.processor_row = ProcessorRow(next(self._serials), params, list(prompt), list(output))
        self._requests[slot] = request
        if request.observers:
            self._observers[slot] = request.observers
        self._num_output[slot] = len(output)
        self._uniforms.set_seed(slot, _seed_of(request_id) if params.seed is None else params.seed)
        self._temperature[slot] = 0.0 if params.greedy else params.temperature
        self._top_k[slot] = max(0, params.top_k)
        self._top_p[slot] = params.top_p
        self._min_p[slot] = params.min_p
        self._num_logprobs[slot] = self._count(
            params.logprobs if request.asked is None else params.logprobs or 0
        )
        self._draws_plainly[slot] = params.draws_plainly and not self._has_processors

    def remove(self, slot: int) -> None:
        """Drop a slot's state."""
        del self._requests[slot]
        self._observers.pop(slot, None)
        self._drawn = None

    def append_each(self, slots: NDArray[np.int64], token_ids: NDArray[np.int64]) -> None:
        """Note the tokens [n, R] that were sampled for each of R distinct slots."""
        self._num_output[slots] += len(token_ids)
        if self._observers:
            for slot, tokens in zip(slots.tolist(), token_ids.T.tolist(), strict=True):
                for observer in self._observers.get(slot, ()):
                    observer.extend(tokens)

    def num_prompt_logprobs(self, slot: int) -> int:
        """Top log probabilities wanted for prompt tokens, or `NO_LOGPROBS`."""
        return self._count(self._requests[slot].params.prompt_logprobs)

    def batch(self, slots: NDArray[np.int64]) -> SamplingBatch:
        """The rows of `slots`, in that order."""
        temperature = self._temperature[slots]
        all_greedy = not temperature.any()
        requests = [(row, self._requests[slot]) for row, slot in enumerate(slots.tolist())]
        return SamplingBatch(
            all_greedy,
            torch.from_numpy(temperature),
            torch.from_numpy(self._top_k[slots]),
            torch.from_numpy(self._top_p[slots]),
            torch.from_numpy(self._min_p[slots]),
            torch.from_numpy(
                np.empty(0) if all_greedy else self._uniforms.at(slots, self._num_output[slots])
            ),
            self._num_logprobs[slots].tolist(),
            _bias(requests),
            _banned(requests, self._num_output[slots].tolist()),
            _penalties(requests),
            _masks(requests),
            _forced(requests),
            _asked(requests),
            [request.processor_row for _, request in requests if request.processor_row is not None],
        )

    def draw(self, slots: NDArray[np.int64]) -> DrawInputs | None:
        """How decode steps of `slots` draw; None unless all draw plainly (`SamplingParams.draws_plainly`).

        Made once for as long as the slots stay; the caller must not write to `slots` afterwards.
        """
        drawn = self._drawn
        if drawn is None or not (drawn[0] is slots or np.array_equal(drawn[0], slots)):
            drawn = self._drawn = slots, self._make_draw(slots)
        return drawn[1]

    def uniforms(self, slots: NDArray[np.int64], steps: int) -> torch.Tensor:
        """[steps, R] float64: the numbers that the next steps of `slots` draw with, used by those that are not greedy."""
        first = self._num_output[slots]
        if steps == 1:
            return torch.from_numpy(self._uniforms.at(slots, first)[None])
        return torch.from_numpy(np.stack([self._uniforms.at(slots, first + ahead) for ahead in range(steps)]))

    def _make_draw(self, slots: NDArray[np.int64]) -> DrawInputs | None:
        if not self._draws_plainly[slots].all():
            return None
        stops = [self._requests[slot].banned for slot in slots.tolist()]
        starts = np.zeros(len(stops) + 1, np.int64)
        np.cumsum([len(ids) for ids in stops], out=starts[1:])
        return DrawInputs(
            torch.from_numpy(self._temperature[slots]),
            torch.from_numpy(self._top_k[slots]),
            torch.from_numpy(self._top_p[slots]),
            torch.from_numpy(self._min_p[slots]),
            torch.from_numpy(np.concatenate(stops)),
            torch.from_numpy(starts),
        )

    def _count(self, wanted: int | None) -> int:
        if wanted is None:
            return NO_LOGPROBS
        return self._vocab_size if wanted < 0 else min(wanted, self._vocab_size)


def _bias(requests: Sequence[tuple[int, RequestSampling]]) -> Entries | None:
    rows = [(row, *request.bias) for row, request in requests if len(request.bias[0])]
    return gather_entries(rows) if rows else None


def _masks(requests: Sequence[tuple[int, RequestSampling]]) -> TokenMasks | None:
    rows = [(row, request.mask) for row, request in requests if request.mask is not None]
    return gather_masks(rows) if rows else None


def _banned(requests: Sequence[tuple[int, RequestSampling]], num_output: Sequence[int]) -> Entries | None:
    rows = [
        (row, ids, np.zeros(len(ids), np.float32))
        for row, request in requests
        if len(ids := request.bans(num_output[row]))
    ]
    return gather_entries(rows) if rows else None


def _penalties(requests: Sequence[tuple[int, RequestSampling]]) -> Penalties | None:
    rows = [item for row, request in requests if (item := request.penalty_row(row)) is not None]
    return gather_penalties(rows) if rows else None


def _forced(requests: Sequence[tuple[int, RequestSampling]]) -> list[tuple[int, int]]:
    found = [(row, request.thinking.forced) for row, request in requests if request.thinking is not None]
    return [(row, token) for row, token in found if token is not None]


def _asked(requests: Sequence[tuple[int, RequestSampling]]) -> list[torch.Tensor | None]:
    asked = [request.asked for _, request in requests]
    return asked if any(ids is not None for ids in asked) else []


def _tensor_of_ids(ids: Sequence[int] | None) -> torch.Tensor | None:
    return torch.tensor(sorted(set(ids)), dtype=torch.int64) if ids else None


def _penalizes(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    )


def _seed_of(request_id: str) -> int:
    """A seed for a request that was given none: stable, and different for each request."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "little")
