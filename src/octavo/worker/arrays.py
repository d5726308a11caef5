"""Growing tables of int32 with a row for each slot of the persistent batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class GrowingTable:
    """Rows of different length over one array that doubles its width when a row outgrows it."""

    def __init__(self, num_rows: int, width: int = 256) -> None:
        self.values = np.zeros((num_rows, width), np.int32)
        """[rows, width]; what lies beyond a row's length is left over from earlier rows."""
        self.lengths = np.zeros(num_rows, np.int64)

    def set_row(self, row: int, items: Sequence[int]) -> None:
        """Replace a row."""
        self.lengths[row] = 0
        self.extend(row, items)

    def extend(self, row: int, items: Sequence[int]) -> None:
        """Append to a row."""
        start = int(self.lengths[row])
        end = start + len(items)
        self._reserve(end)
        self.values[row, start:end] = items
        self.lengths[row] = end

    def append_each(self, rows: NDArray[np.int64], items: NDArray[np.int64]) -> None:
        """Append column i of `items` [n, R] to the i-th of R distinct rows."""
        ends, count = self.lengths[rows], len(items)
        self._reserve(int(ends.max(initial=0)) + count)
        self.values[rows, ends if count == 1 else ends + np.arange(count)[:, None]] = items
        self.lengths[rows] = ends + count

    def _reserve(self, width: int) -> None:
        have = self.values.shape[1]
        if width > have:
            grown = np.zeros((len(self.values), max(width, 2 * have)), np.int32)
            grown[:, :have] = self.values
            self.values = grown
