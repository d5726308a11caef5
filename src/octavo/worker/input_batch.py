"""The persistent batch: what is known of each running request, so that a step sends only what changed.

Everything a step needs is computed with a fixed number of array operations, however many requests it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.attention.metadata import AttentionMetadata, EmbeddedRows, GroupMetadata
from octavo.lib.errors import OctavoError
from octavo.sampling import SamplingTable
from octavo.types.kv import KVLayout
from octavo.types.step import NewRequest, StepPlan
from octavo.worker.arrays import GrowingTable
from octavo.worker.grammars import NO_GRAMMARS, GrammarTable


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """One step as arrays. S scheduled requests, M tokens, R of the requests are sampled."""

    request_ids: list[str]
    """[S] in batch order."""
    slots: NDArray[np.int64]
    """[S]."""
    start: NDArray[np.int64]
    """[S] position of each request's first token of this step."""
    query_start: NDArray[np.int32]
    """[S+1]."""
    sampled: NDArray[np.int64]
    """[R] indices into the S requests, ascending; those that are pooled are not among them."""
    token_ids: torch.Tensor
    """[M] int64."""
    positions: torch.Tensor
    """[M] int64."""
    attention: AttentionMetadata
    room: NDArray[np.int64]
    """[S] tokens that each request has pages for."""
    completes: NDArray[np.bool_]
    """[S] whether the step computes each request's last known token."""
    embeds: EmbeddedRows | None = None

    @property
    def decodes(self) -> bool:
        """Whether every request is there for its last known token only, and each is a token."""
        return self.embeds is None and len(self.slots) == len(self.sampled) == self.token_ids.shape[0]

    def sampled_rows(self) -> torch.Tensor:
        """[R] int64: the row of the M whose logits give each sampled request's next token."""
        return torch.from_numpy(self.query_start[1:][self.sampled].astype(np.int64) - 1)


class InputBatch:
    """Tokens, pages and sampling state of all running requests.

    Args:
        layout: Page geometry.
        max_num_seqs: Slots.
        vocab_size: Columns of the logits.
        has_processors: Whether logits processors have to see every row that is sampled.
        grammars: Matchers of answers that have to have a shape.
    """

    def __init__(
        self,
        layout: KVLayout,
        max_num_seqs: int,
        vocab_size: int,
        *,
        has_processors: bool = False,
        grammars: GrammarTable | None = None,
    ) -> None:
        self.tokens = GrowingTable(max_num_seqs)
        self.pages = [GrowingTable(max_num_seqs, 16) for _ in layout.groups]
        self.sampling = SamplingTable(max_num_seqs, vocab_size, has_processors=has_processors)
        self.grammars = grammars or GrammarTable(NO_GRAMMARS, vocab_size)
        self.num_computed = np.zeros(max_num_seqs, np.int64)
        self.num_prompt = np.zeros(max_num_seqs, np.int64)
        self.wants_prompt_logprobs = np.zeros(max_num_seqs, np.bool_)
        self.is_pooled = np.zeros(max_num_seqs, np.bool_)
        self._block_size = layout.block_size
        self._embeds: dict[int, NDArray[np.float32]] = {}
        """Rows [prompt tokens, H] by slot, of prompts that are given as such."""
        self._slot_of: dict[str, int] = {}
        self._free = list(range(max_num_seqs - 1, -1, -1))
        self._next_step: PreparedStep | None = None
        """What the next step is if it decodes the same requests again: decode steps have advanced its arrays."""
        self._got_pages = False
        """Whether requests have got pages since the last step was prepared."""

    def update(self, plan: StepPlan) -> None:
        """Take in what changed since the last step: requests that left, came, or got pages."""
        if plan.released or plan.new_requests:
            self._next_step = None
        for request_id in plan.released:
            self._remove(request_id)
        for request in plan.new_requests:
            self._add(request)
        for request_id, groups in plan.new_block_ids.items():
            slot = self.slot_of(request_id)
            for table, block_ids in zip(self.pages, groups, strict=True):
                if block_ids:
                    table.extend(slot, block_ids)
        self._got_pages |= bool(plan.new_block_ids)

    def prepare(self, plan: StepPlan) -> PreparedStep:
        """The arrays of a step, valid until the next one is prepared.

        Raises:
            OctavoError: the plan names an unknown request, or schedules tokens that are not known or have no page.
        """
        request_ids = list(plan.num_scheduled_tokens)
        kept, self._next_step = self._next_step, None
        got_pages, self._got_pages = self._got_pages, False
        if kept is not None and kept.request_ids == request_ids and plan.total_tokens == len(request_ids):
            # Only now: a request that got no page is left out of the plan, and its next token has no place.
            room = self._room(kept.slots) if got_pages else kept.room
            if (kept.start + plan.num_steps <= room).all():
                return self._with_new_pages(kept, room) if got_pages else kept
        return self._prepare(plan, request_ids)

    def _prepare(self, plan: StepPlan, request_ids: list[str]) -> PreparedStep:
        slots = self._slots(request_ids)
        counts = np.fromiter(plan.num_scheduled_tokens.values(), np.int64, len(slots))
        start = self.num_computed[slots]
        end = start + counts
        room = self._room(slots)
        self._check(request_ids, slots, end, room, plan.num_steps - 1)
        spread = _one_token_each if len(slots) == int(counts.sum()) else _spread
        rows, positions, query_start = spread(slots, start, counts)
        completes = end == self.tokens.lengths[slots]
        return PreparedStep(
            request_ids,
            slots,
            start,
            query_start,
            np.flatnonzero(completes & ~self.is_pooled[slots]),
            torch.from_numpy(self.tokens.values[rows, positions].astype(np.int64)),
            torch.from_numpy(positions),
            AttentionMetadata(
                torch.from_numpy(query_start),
                torch.from_numpy(end.astype(np.int32)),
                self._groups(slots, rows, positions),
            ),
            room,
            completes,
            self._embedded(slots, start, query_start) if self._embeds else None,
        )

    def _embedded(
        self, slots: NDArray[np.int64], start: NDArray[np.int64], query_start: NDArray[np.int32]
    ) -> EmbeddedRows | None:
        """The rows of a step that belong to prompts given as rows of the embedding."""
        rows, values = [], []
        for index in np.flatnonzero(np.isin(slots, list(self._embeds))).tolist():
            first, count = int(start[index]), int(query_start[index + 1] - query_start[index])
            part = self._embeds[int(slots[index])][first : first + count]
            rows.append(query_start[index] + np.arange(len(part), dtype=np.int64))
            values.append(part)
        if not sum(map(len, rows)):
            return None
        return EmbeddedRows(torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(values)))

    def _with_new_pages(self, step: PreparedStep, room: NDArray[np.int64]) -> PreparedStep:
        """A decode step once requests have got pages."""
        groups = self._groups(step.slots, step.slots, step.start)
        return replace(step, attention=replace(step.attention, groups=groups), room=room)

    def advance(self, step: PreparedStep) -> None:
        """Note that the step's tokens now have their keys and values."""
        self.num_computed[step.slots] = step.start + np.diff(step.query_start)

    def advance_decode(self, step: PreparedStep, tokens: NDArray[np.int64]) -> None:
        """Note that decode steps drew tokens [n, S], each of which but the last one has its keys and values.

        They left token ids, positions, lengths and slots of `step` as those of the step that follows (`ops.decode`).
        """
        self.append(step.slots, tokens)
        self.num_computed[step.slots] += len(tokens)
        self._next_step = step

    def append(self, slots: NDArray[np.int64], token_ids: NDArray[np.int64]) -> None:
        """Add sampled tokens [n, R] to R requests."""
        self.tokens.append_each(slots, token_ids)
        self.sampling.append_each(slots, token_ids)

    def _groups(
        self, slots: NDArray[np.int64], rows: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[GroupMetadata, ...]:
        """Pages of the requests in `slots` [S], and where the tokens at `positions` [M] of slots `rows` are written."""
        page, offset = np.divmod(positions, self._block_size)
        return tuple(self._group(table, slots, rows, page, offset) for table in self.pages)

    def _group(
        self,
        table: GrowingTable,
        slots: NDArray[np.int64],
        rows: NDArray[np.int64],
        page: NDArray[np.int64],
        offset: NDArray[np.int64],
    ) -> GroupMetadata:
        blocks = table.values[rows, page].astype(np.int64)
        # Tokens whose page the scheduler did not keep (out of every later window) are not written anywhere.
        slot_mapping = np.where(blocks == 0, -1, blocks * self._block_size + offset)
        width = int(table.lengths[slots].max(initial=1))
        return GroupMetadata(torch.from_numpy(table.values[slots, :width]), torch.from_numpy(slot_mapping))

    def _room(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """[S] tokens that requests have pages for."""
        pages: NDArray[np.int64] = np.minimum.reduce([table.lengths[slots] for table in self.pages])
        return pages * self._block_size

    def _check(
        self,
        request_ids: list[str],
        slots: NDArray[np.int64],
        end: NDArray[np.int64],
        room: NDArray[np.int64],
        ahead: int,
    ) -> None:
        known = self.tokens.lengths[slots]
        wrong = np.flatnonzero((end > known) | (end + ahead > room))
        if len(wrong):
            first = int(wrong[0])
            raise OctavoError(
                f"the plan runs request {request_ids[first]!r} up to token {end[first] + ahead}, "
                f"but {known[first]} tokens are known and {room[first]} have pages"
            )

    def _add(self, request: NewRequest) -> None:
        if request.request_id in self._slot_of:
            raise OctavoError(f"request {request.request_id!r} is already in the batch")
        if not self._free:
            raise OctavoError(f"the batch is full ({len(self.num_computed)} requests)")
        slot = self._slot_of[request.request_id] = self._free.pop()
        self.tokens.set_row(slot, request.token_ids)
        for table, block_ids in zip(self.pages, request.block_ids, strict=True):
            table.set_row(slot, block_ids)
        self.num_computed[slot] = request.num_computed_tokens
        self.num_prompt[slot] = request.num_prompt_tokens
        self.wants_prompt_logprobs[slot] = request.sampling.prompt_logprobs is not None
        self.is_pooled[slot] = request.pooling is not None
        prompt, output = (
            request.token_ids[: request.num_prompt_tokens],
            request.token_ids[request.num_prompt_tokens :],
        )
        if request.prompt_embeds:
            rows = np.frombuffer(request.prompt_embeds, np.float32)
            self._embeds[slot] = rows.reshape(request.num_prompt_tokens, -1)
            prompt = []  # its ids are placeholders, for penalties as well
        stops, rules = request.stop_token_ids, request.token_rules
        self.sampling.add(slot, request.request_id, request.sampling, prompt, output, stops, rules)
        self.grammars.add(slot, request)

    def _remove(self, request_id: str) -> None:
        # Absent when it was aborted before it ever ran.
        slot = self._slot_of.pop(request_id, None)
        if slot is not None:
            self.sampling.remove(slot)
            self.grammars.remove(slot)
            self._embeds.pop(slot, None)
            self._free.append(slot)

    def _slots(self, request_ids: list[str]) -> NDArray[np.int64]:
        known = self._slot_of
        try:
            return np.array([known[request_id] for request_id in request_ids], np.int64)
        except KeyError:
            return np.array([self.slot_of(request_id) for request_id in request_ids], np.int64)  # raises

    def slot_of(self, request_id: str) -> int:
        """The row of a request's state.

        Raises:
            OctavoError: it is not in the batch.
        """
        slot = self._slot_of.get(request_id)
        if slot is None:
            raise OctavoError(f"the plan names request {request_id!r}, which is not in the batch")
        return slot


def _spread(
    slots: NDArray[np.int64], start: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Slot [M] and position [M] of each token, and `query_start` [S+1], of `counts[i]` >= 1 tokens from `start[i]` on."""
    query_start = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(counts, out=query_start[1:])
    positions = np.arange(query_start[-1]) + np.repeat(start - query_start[:-1], counts)
    return np.repeat(slots, counts), positions, query_start.astype(np.int32)


def _one_token_each(
    slots: NDArray[np.int64], start: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """`_spread` where every count is 1. Positions and starts are one array then, also once decode steps advance it."""
    del counts
    return slots, start, np.arange(len(slots) + 1, dtype=np.int32)
