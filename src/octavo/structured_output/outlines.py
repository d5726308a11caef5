"""Grammars by outlines-core (https://github.com/dottxt-ai/outlines-core), an extra: `pip install octavo[outlines]`.

A regular expression becomes an automaton over the whole vocabulary before the first token: dear to compile, cheap afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import outlines_core
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from octavo.structured_output.backend import GrammarError, NewMatcher
from octavo.structured_output.schema_check import PLAIN, find_fault, read_schema
from octavo.structured_output.vocabulary import Vocabulary
from octavo.types.structured_outputs import StructuredOutputsParams

_MAX_ROLLBACK = 64


class OutlinesBackend:
    """`Backend` by outlines-core: what can be said as a regular expression.

    Args:
        vocabulary: Read at the first compilation.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def compile(self, params: StructuredOutputsParams) -> NewMatcher:
        """See `Backend.compile`."""
        try:
            index = outlines_core.Index(_expression(params), self._tokens)
        except ValueError as error:
            words = " ".join(str(error).split())[:300]
            raise GrammarError(f"the {params.kind} cannot be held to: {words}") from None
        stops = self._vocabulary.eos_token_ids
        return lambda: OutlinesMatcher(outlines_core.Guide(index, _MAX_ROLLBACK), stops)

    @cached_property
    def _tokens(self) -> Any:
        special = frozenset(self._vocabulary.special_ids)
        ids: dict[bytes, list[int]] = {}
        for token, piece in enumerate(self._vocabulary.pieces):
            if piece and token not in special:
                ids.setdefault(piece, []).append(token)
        return outlines_core.Vocabulary(self._vocabulary.eos_token_ids[0], ids)


class OutlinesMatcher:
    """`Matcher` by outlines-core's."""

    def __init__(self, guide: Any, stops: Sequence[int]) -> None:
        self._guide = guide
        self._first_stop = stops[0]

    def accept(self, token_ids: Sequence[int]) -> bool:
        """See `Matcher.accept`."""
        try:
            for token in token_ids:
                self._guide.advance(token, False)
        except ValueError:
            return False
        return True

    def fill_bitmask(self, bits: NDArray[np.int32]) -> None:
        """See `Matcher.fill_bitmask`."""
        bits[:] = 0
        self._guide.write_mask_into(bits.ctypes.data, bits.size, bits.itemsize)

    def rollback(self, count: int) -> None:
        """See `Matcher.rollback`."""
        if count:
            self._guide.rollback_state(count)

    def is_terminated(self) -> bool:
        """See `Matcher.is_terminated`."""
        return bool(self._guide.is_finished()) and self._guide.get_tokens() == [self._first_stop]

    def forced_tokens(self) -> list[int]:
        """See `Matcher.forced_tokens`. An automaton leaves a choice of spelling nearly everywhere, so there are none."""
        return []


def _expression(params: StructuredOutputsParams) -> str:
    if params.kind == "regex":
        return params.text
    if params.kind == "choice":
        return "|".join(f"({re.escape(text)})" for text in params.choice or ())
    schema = read_schema(params.text)
    fault = find_fault(schema, PLAIN)
    if fault is not None:
        raise GrammarError(f"the schema cannot be held to at {fault}")
    return str(build_regex_from_schema(params.text, params.whitespace_pattern))
