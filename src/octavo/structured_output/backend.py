"""What a library for grammars has to do for us. One file a library; nobody else knows which one is at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.lib.errors import InvalidRequestError
from octavo.types.structured_outputs import StructuredOutputsParams


class GrammarError(InvalidRequestError):
    """A constraint that cannot be held to: wrong, not supported, or too large."""


class UnsupportedGrammarError(GrammarError):
    """A constraint that is not wrong; another library may be able to hold to it."""


class Matcher(Protocol):
    """Where one answer stands in its grammar."""

    def accept(self, token_ids: Sequence[int]) -> bool:
        """Go on by these tokens; False, and nothing may be asked of it any more, where one of them does not fit."""

    def fill_bitmask(self, bits: NDArray[np.int32]) -> None:
        """Set the bits [words] of the tokens that may come next, an end of the model among them where the answer may end.

        Raises:
            GrammarError: finding them out would take too long.
        """

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens."""

    def is_terminated(self) -> bool:
        """Whether the answer is complete and cannot go on."""

    def forced_tokens(self) -> list[int]:
        """Tokens of which each is the only one that the bitmask would allow at its place; none where there is a choice."""


NewMatcher = Callable[[], Matcher]
"""A compiled grammar: gives a matcher at its beginning to each answer."""


class Backend(Protocol):
    """A library."""

    def compile(self, params: StructuredOutputsParams) -> NewMatcher:
        """Compile a constraint; may be called from several threads, and takes as long as it takes.

        Raises:
            GrammarError: says what is wrong.
        """
