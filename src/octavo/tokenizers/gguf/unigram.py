"""SentencePiece unigram ("t5" vocabularies): the split of a text whose tokens' scores have the greatest sum.

The search and its tie-breaks are those of SentencePiece (Kudo, 2018, "Subword Regularization") as llama.cpp has
them; the normalisation map is SentencePiece's `precompiled_charsmap`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from octavo.lib.errors import CheckpointError
from octavo.tokenizers.pieces import SPACE_MARK

_UNKNOWN_PENALTY = 10.0


class Charsmap:
    """SentencePiece's compiled normalisation rules: a double-array trie (XOR-compressed) and replacement texts.

    Args:
        blob: `tokenizer.ggml.precompiled_charsmap`; empty means no rules.

    Raises:
        ValueError: The blob is not a whole map.
    """

    def __init__(self, blob: bytes) -> None:
        size = struct.unpack_from("<I", blob)[0] if len(blob) >= 4 else 0
        if blob and (size % 4 or size + 4 >= len(blob) or blob[-1]):
            raise ValueError("the normalisation map is cut short")
        self._units = struct.unpack_from(f"<{size // 4}I", blob, 4) if blob else ()
        self._texts = blob[4 + size :]

    def longest(self, data: bytes, start: int) -> tuple[int, str] | None:
        """The longest rule that matches at `start`: how many bytes it takes and what it puts there."""
        units = self._units
        if not units:
            return None
        found: tuple[int, int] | None = None
        node = _base(units[0])
        for end in range(start, len(data)):
            byte = data[end]
            node ^= byte
            if byte == 0 or node >= len(units) or units[node] & 0x800000FF != byte:
                break
            unit = units[node]
            node ^= _base(unit)
            if unit >> 8 & 1 and node < len(units):  # a leaf: its base leads to the value
                found = (end + 1 - start, units[node] & 0x7FFFFFFF)
        return found and (found[0], self._text(found[1]))

    def _text(self, offset: int) -> str:
        end = self._texts.find(0, offset)
        if end < 0:
            raise CheckpointError("The tokenizer's normalisation map points outside of its texts.")
        return self._texts[offset:end].decode("utf-8", "replace")


def _base(unit: int) -> int:
    return (unit >> 10) << ((unit & 1 << 9) >> 6)


class Normalizer:
    """Writes a text as the vocabulary expects it: rules applied, spaces as U+2581.

    Args:
        charsmap: The rules.
        kept: Texts that no rule changes (user-defined tokens).
        add_space_prefix: Put a space before the first letter.
        merge_spaces: Make one space of several, and none at either end.
    """

    def __init__(
        self, charsmap: Charsmap, kept: Iterable[str], add_space_prefix: bool, merge_spaces: bool
    ) -> None:
        self._charsmap = charsmap
        self._kept = {text.encode("utf-8") for text in kept}
        self._kept_lengths = sorted({len(text) for text in self._kept}, reverse=True)
        self._prefix = add_space_prefix
        self._merge = merge_spaces

    def normalize(self, text: str) -> str:
        """The normalised text."""
        written: list[str] = []
        prefixed = in_word = False
        for letter in "".join(self._replace(text.encode("utf-8"))):
            if letter == " ":
                in_word = False
                if not self._merge:
                    written.append(SPACE_MARK)
                continue
            if not in_word:
                in_word = True
                if self._merge or (self._prefix and not prefixed):
                    written.append(SPACE_MARK)
                    prefixed = True
            written.append(letter)
        return "".join(written)

    def _replace(self, data: bytes) -> Iterable[str]:
        at = 0
        while at < len(data):
            kept = next((n for n in self._kept_lengths if data[at : at + n] in self._kept), 0)
            rule = None if kept else self._charsmap.longest(data, at)
            if rule:
                at += rule[0]
                yield rule[1]
            else:
                length = kept or _letter_length(data[at])
                yield data[at : at + length].decode("utf-8")
                at += length


def _letter_length(lead: int) -> int:
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


class Unigram:
    """Encodes text by the best split.

    Args:
        ids: Text to id of the tokens that may be used.
        scores: Score of each id; user-defined tokens have zero.
        least_score: The least score of a normal token; letters that no token covers cost more.
        unknown_id: Stands for a run of such letters.
        normalizer: Prepares the text.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Sequence[float],
        least_score: float,
        unknown_id: int,
        normalizer: Normalizer,
    ) -> None:
        self._ids = ids
        self._scores = scores
        self._unknown = unknown_id
        self._unknown_score = least_score - _UNKNOWN_PENALTY
        self._normalizer = normalizer
        self._longest: dict[str, int] = {}
        for text in ids:
            self._longest[text[0]] = max(self._longest.get(text[0], 0), len(text))

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        return self._walk_back(*self._search(self._normalizer.normalize(text)))

    def _search(self, text: str) -> tuple[list[int], list[int]]:
        """For each end of a prefix of `text`: the last token of its best split, and where that token starts."""
        size = len(text)
        best = [0.0] + [float("-inf")] * size
        tokens, starts = [self._unknown] * (size + 1), [0] * (size + 1)
        ids, scores = self._ids, self._scores
        for start in range(size):
            covered = False
            for end in range(start + 1, min(size, start + self._longest.get(text[start], 0)) + 1):
                token = ids.get(text[start:end])
                if token is None:
                    continue
                covered |= end == start + 1
                score = best[start] + scores[token]
                if score > best[end]:
                    best[end], tokens[end], starts[end] = score, token, start
            score = best[start] + self._unknown_score
            if not covered and score > best[start + 1]:
                best[start + 1], tokens[start + 1], starts[start + 1] = score, self._unknown, start
        return tokens, starts

    def _walk_back(self, tokens: list[int], starts: list[int]) -> list[int]:
        ids: list[int] = []
        end = len(tokens) - 1
        while end:
            if tokens[end] != self._unknown or not ids or ids[-1] != self._unknown:
                ids.append(tokens[end])
            end = starts[end]
        return ids[::-1]
