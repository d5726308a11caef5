"""A decoder whose forward pass is replayed natively instead of being walked through in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.attention.metadata import AttentionMetadata, ForwardBatch, GroupMetadata, KVBinding
from octavo.compilation import StepProgram
from octavo.models.decoder import Decoder
from octavo.ops.decode import DrawInputs, decode
from octavo.ops.program import PageInputs, StepInputs, ops_are_timed


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
        self._decoded: tuple[ForwardBatch, StepInputs] | None = None
        example = _example(max_tokens, kv, num_groups)
        self._body = StepProgram(lambda: decoder.hidden_states(example), _inputs(example))
        self._logits_of = _example(max_logits_rows, kv, 0)  # its token ids stand for the rows that are wanted
        self._head = StepProgram(
            lambda: decoder.compute_logits(self._body.output, self._logits_of.token_ids),
            _inputs(self._logits_of),
        )

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Hidden states [M, H], overwritten by the next call."""
        if batch.embeds is not None:
            return self._walk(batch)
        self._decoder.reach(int(batch.positions.numpy().max()))
        return self._body.run(_inputs(batch))

    def _walk(self, batch: ForwardBatch) -> torch.Tensor:
        """The same bits without the recording, which begins with a look-up of ids; left where the recorded head reads."""
        hidden = self._body.output[: batch.token_ids.shape[0]]
        return hidden.copy_(self._decoder.forward(batch))

    def compute_logits(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Of rows [R] of what `forward` returned: [R, V], overwritten by the next call.

        Raises:
            ValueError: other hidden states, or more rows than recorded.
        """
        if hidden.data_ptr() != self._body.output.data_ptr():
            raise ValueError(
                "hidden must be what the last forward() returned: the recorded head reads that memory"
            )
        unused = self._logits_of.attention
        return self._head.run(StepInputs(rows, rows, unused.query_start, unused.seq_lens, ()))

    def decode(
        self,
        batch: ForwardBatch,
        draw: DrawInputs,
        uniforms: torch.Tensor | None,
        block_size: int,
        steps: int,
    ) -> NDArray[np.int64]:
        """Several decode steps without coming back to Python: token ids [steps done, S]; see `ops.decode`."""
        self._decoder.reach(int(batch.positions.numpy().max()) + steps - 1)
        return decode(
            self._body.program,
            self._head.program,
            self._head.output,
            self._decode_inputs(batch),
            draw,
            uniforms,
            block_size,
            steps,
        )

    def _decode_inputs(self, batch: ForwardBatch) -> StepInputs:
        """Made once for as long as the same batch comes back: each call leaves its tensors as the next step's."""
        if self._decoded is None or self._decoded[0] is not batch:
            self._decoded = batch, _inputs(batch)
        return self._decoded[1]

    @property
    def max_decode_seqs(self) -> int:
        """The most sequences that `decode` takes; none while ops are timed one by one."""
        return 0 if ops_are_timed() else self._head.output.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the values inside the pass, resident as far as steps have used them."""
        return self._body.nbytes + self._head.nbytes


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
