"""Rules on the next token that follow from the tokens before it: words that may not come, reasoning that has to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class BadWords:
    """Words as token ids. Their last token may not follow the others; only tokens of the answer count, as in vLLM.

    Args:
        words: Each at least one token.
        output: The answer so far.
        vocab_size: Ids that the model's head does not have cannot come anyway.
    """

    def __init__(self, words: Sequence[Sequence[int]], output: Sequence[int], vocab_size: int) -> None:
        able = [tuple(word) for word in words if max(word) < vocab_size]
        self._alone = np.array([word[0] for word in able if len(word) == 1], np.int64)
        self._longer = [word for word in able if len(word) > 1]
        self._reach = max((len(word) - 1 for word in self._longer), default=0)
        self._tail: tuple[int, ...] = ()
        self.extend(output)

    def extend(self, tokens: Iterable[int]) -> None:
        """More of the answer."""
        if self._reach:
            self._tail = (*self._tail, *tokens)[-self._reach :]

    def banned(self) -> NDArray[np.int64]:
        """[n] ids that may not come now; some may occur twice."""
        completing = [word[-1] for word in self._longer if _ends_with(self._tail, word[:-1])]
        return np.concatenate((self._alone, np.array(completing, np.int64)))


class ThinkingBudget:
    """Counts tokens of reasoning, and says which token has to come once they are spent.

    Reasoning that the prompt has begun counts from where it began. Later reasoning of the same answer has what is left.

    Args:
        budget: Tokens of reasoning in all, its marks left out.
        start: Tokens that begin it.
        end: Tokens that end it.
        prompt: The prompt's tokens.
        output: The answer so far.
    """

    def __init__(
        self,
        budget: int,
        start: Sequence[int],
        end: Sequence[int],
        prompt: Sequence[int],
        output: Sequence[int] = (),
    ) -> None:
        self._budget = budget
        self._start, self._end = tuple(start), tuple(end)
        self._reach = max(len(start), len(end))
        self._tail: tuple[int, ...] = ()
        self._inside = False
        self._spent = 0
        self._answering = False
        self.extend(prompt)
        self._answering = True
        self._spent *= self._inside
        self.extend(output)

    def extend(self, tokens: Iterable[int]) -> None:
        """More tokens."""
        for token in tokens:
            self._tail = (*self._tail, token)[-self._reach :]
            self._spent += self._inside
            if _ends_with(self._tail, self._end):
                self._inside = False
            elif _ends_with(self._tail, self._start):
                self._inside = True
                self._spent *= self._answering

    @property
    def forced(self) -> int | None:
        """The only token that may come now; None: any may."""
        said = self._end_said()
        # What has been said of the end mark is no reasoning: an end that the model began by itself is not begun again.
        return self._end[said] if self._inside and self._spent - said >= self._budget else None

    def _end_said(self) -> int:
        """How many tokens of the end mark stand at the end already."""
        return next(
            size for size in range(len(self._end) - 1, -1, -1) if _ends_with(self._tail, self._end[:size])
        )


def _ends_with(tokens: tuple[int, ...], end: tuple[int, ...]) -> bool:
    return tokens[len(tokens) - len(end) :] == end if len(end) <= len(tokens) else False
