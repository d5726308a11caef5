"""Pools the hidden states of requests, whatever chunks their prompts come in: the same bits for every cut.

Sums run over positions in ascending order, one chain in float64 for each request.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.config import PoolingConfig
from octavo.models.pooling import VectorHead
from octavo.types.pooling_params import PoolingParams
from octavo.types.step import RequestStep
from octavo.worker.input_batch import PreparedStep

NOT_FINITE = "the model's hidden states are not finite numbers"
# Rows added up at a time, which bounds memory: 64 rows of 8,192 numbers are 4 MiB.
_ROWS_AT_A_TIME = 64

ComputeLogits = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Pooler:
    """The pooling side of the persistent batch.

    Args:
        config: How to pool.
        head: What makes vectors of pooled rows.
        num_slots: Requests at a time.
        hidden_size: Numbers in a hidden state.
    """

    def __init__(self, config: PoolingConfig, head: VectorHead, num_slots: int, hidden_size: int) -> None:
        self._classifies = config.task == "classify"
        self._kind = config.pooling_type
        self._head = head
        self._params: dict[int, PoolingParams] = {}
        # Resident only where slots are used, and not at all where the last token says everything.
        self._state = np.zeros((0 if self._kind == "LAST" else num_slots, hidden_size))

    def add(self, slot: int, params: PoolingParams) -> None:
        """A request has come."""
        self._params[slot] = params

    def pool(
        self,
        step: PreparedStep,
        requests: NDArray[np.int64],
        hidden: torch.Tensor,
        classify: ComputeLogits,
        results: list[RequestStep],
    ) -> None:
        """Take in a step's hidden states and write the vectors of the prompts that it completes into `results`.

        Args:
            step: The step.
            requests: [P] which of its requests are pooled.
            hidden: [M, H].
            classify: Gives rows of `hidden` their classes.
            results: One for each request of the step.
        """
        for request in requests.tolist() if self._kind != "LAST" else ():
            self._take(step, request, hidden)
        done = requests[step.completes[requests]]
        if not len(done):
            return
        slots = step.slots[done].tolist()
        rows = self._rows(step, done, hidden, classify)
        vectors = self._head.vectors(rows, [self._params[slot] for slot in slots])
        for request, vector in zip(done.tolist(), vectors, strict=True):
            results[request].pooled = vector
            results[request].error = NOT_FINITE if vector is None else None

    def _take(self, step: PreparedStep, request: int, hidden: torch.Tensor) -> None:
        """Remember what a chunk of a prompt brings to its first row, or to its mean."""
        first, end = step.query_start[request : request + 2].tolist()
        state, start = self._state[step.slots[request]], int(step.start[request])
        if start == 0:
            state[:] = hidden[first].numpy() if self._kind == "CLS" else 0.0
        if self._kind == "MEAN":
            _add_rows(state, hidden[first:end].numpy())
            if step.completes[request]:
                state /= start + end - first

    def _rows(
        self, step: PreparedStep, done: NDArray[np.int64], hidden: torch.Tensor, classify: ComputeLogits
    ) -> torch.Tensor:
        """[R, H] float32 of the completed requests, or [R, labels]."""
        if self._kind != "LAST":
            return torch.from_numpy(self._state[step.slots[done]].astype(np.float32))
        last = torch.from_numpy(step.query_start[1:][done].astype(np.int64) - 1)
        return classify(hidden, last) if self._classifies else hidden[last]


def _add_rows(total: NDArray[np.float64], rows: NDArray[np.float32]) -> None:
    """total [H] += rows [n, H], one after the other."""
    for first in range(0, len(rows), _ROWS_AT_A_TIME):
        part = rows[first : first + _ROWS_AT_A_TIME].astype(np.float64)
        part[0] += total
        total[:] = np.add.accumulate(part, axis=0)[-1]
