"""Which tokens a request has seen, kept sparse so that penalties cost O(tokens seen), not O(vocabulary)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class TokenHistory:
    """Distinct tokens of prompt and output, and how often each occurs in the output."""

    def __init__(self, prompt: Sequence[int], output: Sequence[int] = ()) -> None:
        distinct = np.unique(np.asarray(prompt, dtype=np.int64))
        self._size = len(distinct)
        self._ids = np.zeros(max(64, 2 * self._size), np.int64)
        self._counts = np.zeros(len(self._ids), np.float32)
        self._ids[: self._size] = distinct
        self._slot_of = {token: slot for slot, token in enumerate(distinct.tolist())}
        self.extend(output)

    @property
    def ids(self) -> NDArray[np.int64]:
        """[n] distinct tokens, in order of first sight (the prompt's ascending)."""
        return self._ids[: self._size]

    @property
    def counts(self) -> NDArray[np.float32]:
        """[n] occurrences of each in the output."""
        return self._counts[: self._size]

    def extend(self, tokens: Iterable[int]) -> None:
        """Count more output tokens."""
        for token in tokens:
            slot = self._slot_of.get(token)
            if slot is None:
                slot = self._new_slot(token)
            self._counts[slot] += 1.0

    def _new_slot(self, token: int) -> int:
        if self._size == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        slot = self._slot_of[token] = self._size
        self._ids[slot] = token
        self._size += 1
        return slot
