"""PLaMo 2 vocabularies: the cheapest split of a text, found from its end, with byte tokens for what is left.

The costs (scores times 10,000, rounded, and 10,000,000 for a letter that no token covers) and the tie-break (the longer
token first) are those of PLaMo 2's own tokenizer, as llama.cpp has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_SCALE = 1e4
_UNKNOWN_COST = 10_000_000
_BYTE_ORDER_MARK = "\ufeff"


class CheapestSplit:
    """Encodes text by the cheapest split.

    Args:
        scores: Text to (id, score) of the tokens that may be used.
        byte_ids: Byte to the id of its token; all 256.
    """

    def __init__(self, scores: Mapping[str, tuple[int, float]], byte_ids: Mapping[int, int]) -> None:
        self._tokens = {
            text: (token_id, _round(score * _SCALE))
            for text, (token_id, score) in scores.items()
            if math.isfinite(score)
        }
        self._bytes = byte_ids
        self._longest: dict[str, int] = {}
        for text in self._tokens:
            self._longest[text[0]] = max(self._longest.get(text[0], 0), len(text))

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        text = text.removeprefix(_BYTE_ORDER_MARK)
        lengths, tokens = self._search(text)
        ids: list[int] = []
        at = 0
        while at < len(text):
            token = tokens[at]
            ids += self._spell(text[at]) if token is None else [token]
            at += lengths[at]
        return ids

    def _search(self, text: str) -> tuple[list[int], list[int | None]]:
        """For each place: the length and the id of the token that the best split of the rest begins with."""
        size = len(text)
        cost: list[float] = [math.inf] * size + [0]
        lengths = [1] * size
        best: list[int | None] = [None] * size
        for start in range(size - 1, -1, -1):
            for length in range(min(size - start, self._longest.get(text[start], 0)), 0, -1):
                token = self._tokens.get(text[start : start + length])
                if token is not None and cost[start + length] - token[1] < cost[start]:
                    cost[start], lengths[start], best[start] = (
                        cost[start + length] - token[1],
                        length,
                        token[0],
                    )
            if cost[start + 1] + _UNKNOWN_COST < cost[start]:
                cost[start], lengths[start], best[start] = cost[start + 1] + _UNKNOWN_COST, 1, None
        return lengths, best

    def _spell(self, letter: str) -> list[int]:
        return [self._bytes[byte] for byte in letter.encode("utf-8")]


def _round(value: float) -> int:
    """Half away from zero, as C's `round`."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))
