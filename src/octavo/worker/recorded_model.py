"""A decoder whose forward pass is replayed natively instead of being walked through in Python."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.attention.metadata import AttentionMetadata, ForwardBatch, GroupMetadata, KVBinding
from octavo.compilation import StepProgram
from octavo.models.decoder import Decoder
from octavo.ops.program import PageInputs, StepInputs


class RecordedModel:
    """The decoder's forward and its head as two step programs, with the decoder's own interface.

    Args:
        decoder: With its weights loaded.
        kv: The pages' tensors, which must not move afterwards.
        num_groups: Page groups.
        max_tokens: The most rows that `forward` takes.
        max_logits_rows: The most rows that `compute_logits` takes.

    Raises:
        NotSupportedError: the model computes something that cannot be recorded.
    """

    def __init__(
        self,
        decoder: Decoder,
        kv: Sequence[KVBinding],
        num_groups: int,
        *,
        max_tokens: int,
        max_logits_rows: int,
    ) -> None:
        self._decoder = decoder
        example = _example(max_tokens, kv, num_groups)
        self._body = StepProgram(lambda: decoder.hidden_states(example), _inputs(example))
        self._head_batch = _example(max_logits_rows, kv, 0)
        self._hidden = torch.empty(max_logits_rows, decoder.spec.hidden_size)
        self._head = StepProgram(lambda: decoder.compute_logits(self._hidden), _inputs(self._head_batch))

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Hidden states [M, H], overwritten by the next call."""
        self._decoder.reach(batch.positions)
        return self._body.run(_inputs(batch))

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[R, H] -> [R, V], overwritten by the next call."""
        rows = hidden.shape[0]
        self._hidden[:rows].copy_(hidden)
        return self._head.run(_rows_only(self._head_batch, rows))

    @property
    def nbytes(self) -> int:
        """Bytes of the values inside the pass, resident as far as steps have used them."""
        return self._body.nbytes + self._head.nbytes + self._hidden.nbytes


def _example(rows: int, kv: Sequence[KVBinding], num_groups: int) -> ForwardBatch:
    """Stands for the inputs of a step of `rows` tokens while a program is recorded."""
    ids = torch.zeros(2, rows, dtype=torch.int64)
    one_sequence = torch.tensor([0, rows, rows], dtype=torch.int32)
    groups = tuple(
        GroupMetadata(torch.zeros(1, 1, dtype=torch.int32), torch.zeros(rows, dtype=torch.int64))
        for _ in range(num_groups)
    )
    return ForwardBatch(ids[0], ids[1], AttentionMetadata(one_sequence[:2], one_sequence[2:], groups), kv)


def _inputs(batch: ForwardBatch) -> StepInputs:
    rows = batch.attention
    return StepInputs(
        batch.token_ids,
        batch.positions,
        rows.query_start,
        rows.seq_lens,
        tuple(PageInputs(group.block_table, group.slot_mapping) for group in rows.groups),
    )


def _rows_only(batch: ForwardBatch, rows: int) -> StepInputs:
    """Inputs of a program that reads none of them: only their number counts."""
    return StepInputs(
        batch.token_ids[:rows],
        batch.positions[:rows],
        batch.attention.query_start,
        batch.attention.seq_lens,
        (),
    )
