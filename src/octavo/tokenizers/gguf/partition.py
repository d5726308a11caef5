"""Splitting a text at the spellings of special tokens, before anything else looks at it.

The order is llama.cpp's (`tokenizer_st_partition`): tokens are tried from the longest spelling (in bytes) to the
shortest, each taking all its occurrences from left to right out of what earlier ones left over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPACES = " \t\n\v\f\r"  # what C's isspace takes in the "C" locale


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token whose spelling is looked for in texts.

    Attributes:
        strip_left: It also takes the white space before it.
        strip_right: It also takes the white space after it.
    """

    token_id: int
    text: str
    strip_left: bool = False
    strip_right: bool = False


Fragment = str | int
"""A stretch of text that holds no special token, or the id of one."""


class Partition:
    """Splits texts at a fixed set of special tokens."""

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        ordered = sorted(tokens, key=lambda token: -len(token.text.encode("utf-8")))
        self._rank = {token.text: rank for rank, token in enumerate(ordered)}
        self._tokens = ordered
        self._longest = max((len(token.text) for token in ordered), default=0)
        # Every beginning of a spelling: where none goes on, no spelling does.
        self._beginnings = {token.text[:end] for token in ordered for end in range(1, len(token.text))}
        letters = "".join(map(re.escape, sorted({token.text[0] for token in ordered})))
        self._starts = re.compile(f"[{letters}]") if letters else None

    def split(self, text: str) -> list[Fragment]:
        """The fragments of `text` in order; none of them is empty."""
        fragments: list[Fragment] = [text] if text else []
        for token in self._present(text):
            fragments = [part for fragment in fragments for part in _cut(fragment, token)]
        return fragments

    def _present(self, text: str) -> list[SpecialToken]:
        """The tokens that occur in `text` at all, in the order in which they are tried."""
        if self._starts is None:
            return []
        found: set[int] = set()
        rank, beginnings = self._rank, self._beginnings
        before = ""
        for match in self._starts.finditer(text):
            window = text[match.start() : match.start() + self._longest]
            if window == before:
                continue  # a run of one letter
            before = window
            for end in range(1, len(window) + 1):
                spelling = window[:end]
                if spelling in rank:
                    found.add(rank[spelling])
                if spelling not in beginnings:
                    break
        return [self._tokens[rank] for rank in sorted(found)]


def _cut(fragment: Fragment, token: SpecialToken) -> list[Fragment]:
    if isinstance(fragment, int):
        return [fragment]
    parts: list[Fragment] = []
    pieces = fragment.split(token.text)
    for number, piece in enumerate(pieces):
        if number and token.strip_right:
            piece = piece.lstrip(_SPACES)
        if number < len(pieces) - 1 and token.strip_left:
            piece = piece.rstrip(_SPACES)
        if number:
            parts.append(token.token_id)
        if piece:
            parts.append(piece)
    return parts
