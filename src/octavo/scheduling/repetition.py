"""Answers caught in a loop: their end is one pattern of tokens, again and again."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.types.sampling_params import RepetitionDetectionParams


class RepetitionWatch:
    """Looks at tokens as they come. A token costs one comparison for each size of pattern, however long the answer is.

    An answer ends with c patterns of p tokens exactly if its last p * (c - 1) tokens equal those p places before them.

    Args:
        params: Sizes and count.
    """

    __slots__ = ("_count", "_runs", "_shortest", "_tokens")

    def __init__(self, params: RepetitionDetectionParams) -> None:
        self._shortest = max(1, params.min_pattern_size)
        self._count = params.min_count
        self._runs = [0] * (params.max_pattern_size + 1 - self._shortest if params.max_pattern_size else 0)
        """For each size p: how many of the last tokens in a row equal the one p places before."""
        self._tokens: list[int] = []

    @classmethod
    def of(cls, params: RepetitionDetectionParams | None, tokens: Iterable[int] = ()) -> RepetitionWatch:
        """A watch that has seen `tokens`, or one that never catches anything."""
        watch = cls(params or RepetitionDetectionParams())
        for token in tokens:
            watch.caught(token)
        return watch

    def caught(self, token: int) -> bool:
        """Take the next token of the answer; whether it completes a repetition."""
        if not self._runs:
            return False
        tokens, found = self._tokens, False
        tokens.append(token)
        last = len(tokens) - 1
        for index, run in enumerate(self._runs):
            size = self._shortest + index
            same = size <= last and tokens[last - size] == token
            self._runs[index] = run = run + 1 if same else 0
            found = found or (same and run >= size * (self._count - 1))
        return found
