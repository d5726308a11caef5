"""Memory for the values inside a recorded forward pass."""

from __future__ import annotations

import math
import weakref

import numpy as np
import torch
from numpy.typing import NDArray

# A free buffer is reused for a value of at least this share of its size.
_SMALLEST_FIT = 0.5


class BufferPool:
    """Hands out float32 tensors, and hands a tensor's memory out again once nothing refers to it any more.

    Recording runs the Python of a forward pass, where a value dies when its last user has been recorded. So values
    whose lives do not overlap share memory, and a whole model needs about as much as one layer.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.float32]] = []
        self._free: list[int] = []

    def empty(self, *shape: int) -> torch.Tensor:
        """An uninitialised dense tensor. Memory becomes resident where it is written."""
        count = math.prod(shape)
        index = self._take(count)
        values = self._buffers[index][:count].reshape(shape)
        # Views of the tensor keep this array alive: it dies with the last of them.
        weakref.finalize(values, self._free.append, index)
        return self._as_tensor(values)

    @staticmethod
    def _as_tensor(values: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(values)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def _take(self, count: int) -> int:
        fitting = [i for i in self._free if count <= len(self._buffers[i]) <= count / _SMALLEST_FIT]
        if not fitting:
            self._buffers.append(np.empty(count, np.float32))
            return len(self._buffers) - 1
        best = min(fitting, key=lambda i: len(self._buffers[i]))
        self._free.remove(best)
        return best
