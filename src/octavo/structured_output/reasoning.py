"""Reasoning before an answer is free; the grammar begins after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.structured_output.backend import Matcher


class AfterReasoning:
    """A matcher that lets reasoning pass by.

    Reasoning may have been begun by the prompt; else the answer may begin with it, where its mark is a single token. It is
    never left by an end of the answer, which would then have none of what was asked for.

    Args:
        inner: For what comes after.
        marks: Tokens that begin reasoning and tokens that end it.
        prompt: The prompt's tokens.
        eos_token_ids: End an answer.
    """

    def __init__(
        self,
        inner: Matcher,
        marks: tuple[Sequence[int], Sequence[int]],
        prompt: Sequence[int],
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        self._inner = inner
        self._begin, self._end = (tuple(mark) for mark in marks)
        self._eos = tuple(eos_token_ids)
        opened, closed = (_last_place(prompt, mark) for mark in (self._begin, self._end))
        self._starts_inside = opened > closed
        self._reasoning: list[int] = []
        self._closed = False
        self._answered = 0

    @property
    def _inside(self) -> bool:
        return not self._closed and (self._starts_inside or bool(self._reasoning))

    @property
    def _may_open(self) -> bool:
        return len(self._begin) == 1 and not (self._starts_inside or self._reasoning or self._answered)

    def accept(self, token_ids: Sequence[int]) -> bool:
        """See `Matcher.accept`."""
        return all(map(self._take, token_ids))

    def _take(self, token: int) -> bool:
        if self._inside or (self._may_open and token == self._begin[0]):
            self._reasoning.append(token)
            self._closed = tuple(self._reasoning[-len(self._end) :]) == self._end
            return True
        self._answered += 1
        return self._inner.accept([token])

    def fill_bitmask(self, bits: NDArray[np.int32]) -> None:
        """See `Matcher.fill_bitmask`."""
        if self._inside:
            bits[:] = -1
            for token in self._eos:
                bits[token // 32] &= ~_bit(token)
            return
        self._inner.fill_bitmask(bits)
        if self._may_open:
            bits[self._begin[0] // 32] |= _bit(self._begin[0])

    def rollback(self, count: int) -> None:
        """See `Matcher.rollback`."""
        answered = min(count, self._answered)
        self._inner.rollback(answered)
        self._answered -= answered
        if count > answered:
            del self._reasoning[answered - count :]
            self._closed = False

    def is_terminated(self) -> bool:
        """See `Matcher.is_terminated`."""
        return not self._inside and self._inner.is_terminated()

    def forced_tokens(self) -> list[int]:
        """See `Matcher.forced_tokens`."""
        return [] if self._inside or self._may_open else self._inner.forced_tokens()


def _bit(token: int) -> np.int32:
    return np.int32((1 << token % 32) - (1 << 32) * (token % 32 == 31))


def _last_place(tokens: Sequence[int], mark: tuple[int, ...]) -> int:
    """Where a mark begins for the last time; -1: nowhere."""
    size = len(mark)
    places = (at for at in range(len(tokens) - size, -1, -1) if tuple(tokens[at : at + size]) == mark)
    return next(places, -1) if size else -1
