"""Step programs: the calls of many ops, recorded once and run in one native call (the CPU's answer to a CUDA graph)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from octavo.ops.dispatch import Allocate, built_module, recording
from octavo.ops.operands import address


@dataclass(frozen=True, slots=True)
class PageInputs:
    """Where the pages of one page group lie; shapes as in `paged_attention` and `write_kv`."""

    block_table: torch.Tensor
    slot_mapping: torch.Tensor


@dataclass(frozen=True)
class StepInputs:
    """What differs from step to step. M rows, S sequences. Serves any number of calls."""

    token_ids: torch.Tensor
    """[M] int64, as are the positions."""
    positions: torch.Tensor
    query_start: torch.Tensor
    """[S+1] int32."""
    seq_lens: torch.Tensor
    """[S] int32."""
    groups: tuple[PageInputs, ...]

    @cached_property
    def addresses(self) -> tuple[int, int, int, int]:
        """Of the four tensors in order, once their types and shapes are checked."""
        rows, seqs = self.token_ids.shape[0], self.seq_lens.shape[0]
        return (
            address("token_ids", self.token_ids, torch.int64, (rows,)),
            address("positions", self.positions, torch.int64, (rows,)),
            address("query_start", self.query_start, torch.int32, (seqs + 1,)),
            address("seq_lens", self.seq_lens, torch.int32, (seqs,)),
        )

    @cached_property
    def group_addresses(self) -> list[tuple[int, int, int]]:
        """Of each group's block table, its row stride, and of the slots."""
        rows, seqs = self.token_ids.shape[0], self.seq_lens.shape[0]
        return [
            (
                address("block_table", group.block_table, torch.int32, (seqs, group.block_table.shape[1])),
                group.block_table.shape[1],
                address("slot_mapping", group.slot_mapping, torch.int64, (rows,)),
            )
            for group in self.groups
        ]


@dataclass(frozen=True, slots=True)
class OpTime:
    """What one op of a program took."""

    name: str
    nanoseconds: int
    weight_bytes: int
    """Of weights that it reads whole."""


TimesListener = Callable[[int, list[OpTime]], None]
"""Gets the rows of a run and its ops' times in order."""

_listener: TimesListener | None = None


@contextmanager
def op_times(listener: TimesListener) -> Iterator[None]:
    """Within the context every run of every program of this process is timed op by op, and `listener` is told."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def ops_are_timed() -> bool:
    """Whether `op_times` is on: what runs whole programs natively must go through `Program.run` then."""
    return _listener is not None


class Program:
    """Ops in the order in which they were called while recording.

    The buffers they wrote and the weights and tables they read must outlive the program (weights it holds itself).

    Args:
        example: Inputs that the recorded calls are made with. M is the most rows that the program can take; the
            tensors' contents do not matter, their identity does: a recorded op that reads them reads the step's.
    """

    def __init__(self, example: StepInputs) -> None:
        groups = example.group_addresses
        self.native = built_module().Program(
            example.token_ids.shape[0],
            *example.addresses,
            [table for table, _, _ in groups],
            [slots for _, _, slots in groups],
        )

    @contextmanager
    def record(self, allocate: Allocate) -> Iterator[None]:
        """Within the context ops append themselves here instead of running; `allocate` gives their outputs.

        Raises:
            AttributeError, ValueError: from the op, if it cannot be recorded.
        """
        with recording(self.native, allocate):
            yield

    def run(self, inputs: StepInputs) -> None:
        """Run all ops on the first M rows of their buffers. No other thread may use the buffers meanwhile.

        Raises:
            ValueError: more rows than recorded, or ids, positions or pages outside of what the ops can read.
        """
        if _listener is None:
            self.native.run(*_arguments(inputs))
        else:
            _listener(inputs.token_ids.shape[0], self._op_times(inputs))

    def run_timed(self, inputs: StepInputs) -> list[tuple[str, int]]:
        """As `run`; name and nanoseconds of each op, in order."""
        timed: list[tuple[str, int]] = self.native.run_timed(*_arguments(inputs))
        return timed

    def _op_times(self, inputs: StepInputs) -> list[OpTime]:
        timed = zip(self.run_timed(inputs), self.native.weight_bytes(), strict=True)
        return [OpTime(name, nanoseconds, weights) for (name, nanoseconds), weights in timed]

    def __len__(self) -> int:
        return len(self.native)


def _arguments(inputs: StepInputs) -> tuple[object, ...]:
    rows, seqs = inputs.token_ids.shape[0], inputs.seq_lens.shape[0]
    return rows, seqs, *inputs.addresses, inputs.group_addresses
