"""Records a function of tensors and replays it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.compilation.buffers import BufferPool
from octavo.compilation.view_guard import ViewsOnly
from octavo.ops.program import Program, StepInputs


class StepProgram:
    """The ops that a function calls, recorded once, replayed natively for any number of rows up to the recorded one.

    Replaying gives the bits that calling the function gives: the same kernels run in the same order.

    Args:
        function: Calls ops on the example's tensors and on tensors that outlive the program; returns the result
            [M, H]. It must compute nothing outside of ops (views are fine).
        example: Inputs of the most rows that a step can have.

    Raises:
        NotSupportedError: the function computes something that is not an op.
    """

    def __init__(self, function: Callable[[], torch.Tensor], example: StepInputs) -> None:
        self._buffers = BufferPool()
        self.program = Program(example)
        with ViewsOnly(), self.program.record(self._buffers.empty):
            self.output = function()
            """[rows, H]: the result of the last run in its first M rows."""

    def run(self, inputs: StepInputs) -> torch.Tensor:
        """The function's result for a step: [M, H], overwritten by the next run."""
        self.program.run(inputs)
        return self.output[: inputs.token_ids.shape[0]]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, resident as far as steps have used them."""
        return self._buffers.nbytes

    def __len__(self) -> int:
        return len(self.program)
