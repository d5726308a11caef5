"""SentencePiece BPE ("llama" vocabularies): adjacent pieces merge in the order of the merged token's score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from octavo.tokenizers.pieces import SPACE_MARK

_CACHED_WORDS = 1 << 15
_LONGEST_CACHED = 64


class ScoredMerges:
    """Encodes text by score-driven merges, with byte tokens for what no token covers.

    A text is cut into words first, at every place where no token could reach across; that changes nothing but
    makes words that come again cheap.

    Args:
        ids: Id of each token's text.
        scores: Score of each id.
        byte_ids: Byte to the id of its token.
        unknown_id: Stands for bytes that have no token.
        add_space_prefix: Whether a text, and a stretch after a special token, begins with a space.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Sequence[float],
        byte_ids: Mapping[int, int],
        unknown_id: int | None,
        add_space_prefix: bool,
    ) -> None:
        self._ids = ids
        self._scores = scores
        self._bytes = byte_ids
        self._unknown = unknown_id
        self._prefix = SPACE_MARK if add_space_prefix else ""
        self._words = _word_pattern(ids)
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        marked = (self._prefix if after_special else "") + text.replace(" ", SPACE_MARK)
        ids: list[int] = []
        for word in self._words.findall(marked):
            ids += self._word(word)
        return ids

    def _word(self, word: str) -> list[int]:
        known = self._cache.get(word)
        if known is None:
            known = self._merge(word)
            if len(word) <= _LONGEST_CACHED:
                if len(self._cache) >= _CACHED_WORDS:
                    self._cache = {}
                self._cache[word] = known
        return known

    def _merge(self, word: str) -> list[int]:
        """Merge the letters of a word; a heap holds the possible merges, best score first, then leftmost."""
        symbols = list(word)
        count = len(symbols)
        after = [*range(1, count), -1]
        before = list(range(-1, count - 1))
        ids, scores = self._ids, self._scores
        heap: list[tuple[float, int, int, int]] = []
        for left in range(count - 1):
            token = ids.get(symbols[left] + symbols[left + 1])
            if token is not None:
                heap.append((-scores[token], left, left + 1, 2))
        heapify(heap)
        while heap:
            _, left, right, size = heappop(heap)
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != size:
                continue  # one side has merged elsewhere since
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            for first, second in ((before[left], left), (left, after[left])):
                if first >= 0 and second >= 0:
                    pair = symbols[first] + symbols[second]
                    token = ids.get(pair)
                    if token is not None:
                        heappush(heap, (-scores[token], first, second, len(pair)))
        return [token_id for symbol in symbols if symbol for token_id in self._spell(symbol)]

    def _spell(self, symbol: str) -> list[int]:
        token = self._ids.get(symbol)
        if token is not None:
            return [token]
        found = [self._bytes.get(byte, self._unknown) for byte in symbol.encode("utf-8")]
        return [token_id for token_id in found if token_id is not None]


def _word_pattern(ids: Mapping[str, int]) -> re.Pattern[str]:
    """Words: space marks, then other letters; and on, after a letter behind which some token has a space mark."""
    bridge = re.compile(f"([^{SPACE_MARK}]){SPACE_MARK}")
    # Texts are joined for speed; a newline joins them, so those that hold one themselves are looked at alone.
    bridges = {letter for letter in bridge.findall("\n".join(ids)) if letter != "\n"}
    if any("\n" in bridge.findall(text) for text in ids if "\n" in text):
        bridges.add("\n")
    word = f"(?:{SPACE_MARK}*[^{SPACE_MARK}]+|{SPACE_MARK}+)"
    if bridges:
        word += f"(?:(?<=[{''.join(map(re.escape, sorted(bridges)))}]){SPACE_MARK}+[^{SPACE_MARK}]*)*"
    return re.compile(word)
