"""The sampling side of the persistent batch: one slot a request, columns for what every row has, objects for the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops.decode import DrawInputs
from octavo.sampling.edits import Entries, Penalties, PenaltyRow, gather_entries, gather_penalties
from octavo.sampling.history import TokenHistory
from octavo.sampling.philox import UniformTable
from octavo.types.sampling_params import SamplingParams

NO_LOGPROBS = -1


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

    @property
    def edits_logits(self) -> bool:
        """Whether any row's logits are changed before sampling."""
        return self.bias is not None or self.banned is not None or self.penalties is not None

    @property
    def wants_logprobs(self) -> bool:
        """Whether any row wants log probabilities."""
        return any(count != NO_LOGPROBS for count in self.num_logprobs)


class RequestSampling:
    """What one request asked for, beyond the plain columns."""

    __slots__ = ("banned", "bias", "history", "min_tokens", "params")

    def __init__(
        self, params: SamplingParams, history: TokenHistory | None, banned: NDArray[np.int64]
    ) -> None:
        self.params = params
        self.history = history
        self.min_tokens = params.min_tokens
        self.banned = banned
        bias = params.logit_bias or {}
        self.bias = (
            np.fromiter(bias.keys(), np.int64, len(bias)),
            np.fromiter(bias.values(), np.float32, len(bias)),
        )

    def bans(self, num_output: int) -> bool:
        """Whether stop tokens are still held back after so many generated ones."""
        return num_output < self.min_tokens and len(self.banned) > 0

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
    """

    def __init__(self, num_slots: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._temperature = np.zeros(num_slots, np.float32)
        self._top_k = np.zeros(num_slots, np.int32)
        self._top_p = np.ones(num_slots, np.float32)
        self._min_p = np.zeros(num_slots, np.float32)
        self._num_logprobs = np.full(num_slots, NO_LOGPROBS, np.int64)
        self._draws_plainly = np.zeros(num_slots, np.bool_)
        self._num_output = np.zeros(num_slots, np.int64)
        self._uniforms = UniformTable(num_slots)
        self._requests: dict[int, RequestSampling] = {}
        self._histories: dict[int, TokenHistory] = {}
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
    ) -> None:
        """Fill a slot. `output` are tokens generated before a preemption or restart."""
        self._drawn = None
        history = TokenHistory(prompt, output) if _penalizes(params) else None
        if history is not None:
            self._histories[slot] = history
        banned = np.unique(np.array(stop_token_ids, np.int64))
        # An id that the head does not have cannot be sampled: nothing to hold back, and no reason to fail the batch.
        banned = banned[banned < self._vocab_size]
        self._requests[slot] = RequestSampling(params, history, banned)
        self._num_output[slot] = len(output)
        self._uniforms.set_seed(slot, _seed_of(request_id) if params.seed is None else params.seed)
        self._temperature[slot] = 0.0 if params.greedy else params.temperature
        self._top_k[slot] = max(0, params.top_k)
        self._top_p[slot] = params.top_p
        self._min_p[slot] = params.min_p
        self._num_logprobs[slot] = self._count(params.logprobs)
        self._draws_plainly[slot] = params.draws_plainly

    def remove(self, slot: int) -> None:
        """Drop a slot's state."""
        del self._requests[slot]
        self._histories.pop(slot, None)
        self._drawn = None

    def append_each(self, slots: NDArray[np.int64], token_ids: NDArray[np.int64]) -> None:
        """Note the tokens [n, R] that were sampled for each of R distinct slots."""
        self._num_output[slots] += len(token_ids)
        if self._histories:
            for slot, tokens in zip(slots.tolist(), token_ids.T.tolist(), strict=True):
                if slot in self._histories:
                    self._histories[slot].extend(tokens)

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


def _banned(requests: Sequence[tuple[int, RequestSampling]], num_output: Sequence[int]) -> Entries | None:
    rows = [
        (row, request.banned, np.zeros(len(request.banned), np.float32))
        for row, request in requests
        if request.bans(num_output[row])
    ]
    return gather_entries(rows) if rows else None


def _penalties(requests: Sequence[tuple[int, RequestSampling]]) -> Penalties | None:
    rows = [item for row, request in requests if (item := request.penalty_row(row)) is not None]
    return gather_penalties(rows) if rows else None


def _penalizes(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    )


def _seed_of(request_id: str) -> int:
    """A seed for a request that was given none: stable, and different for each request."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "little")
