"""Byte-pair encoding with ranked merges, on the Rust `tokenizers` library."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models, pre_tokenizers

from octavo.tokenizers.gguf.pretokenizers import PreTokenizer
from octavo.tokenizers.gguf.vocabulary import PREFIX, Vocabulary
from octavo.tokenizers.pieces import SPACE_MARK
from octavo.tokenizers.rust import rust_ids

_LINES = re.compile(r"[^\n]+|\n+")


class BytePairs:
    """Encodes text with a byte-level vocabulary: split as the model was trained, then merged by rank.

    Args:
        vocabulary: The tokens.
        merges: Pairs "left right", best first.
        pre_tokenizer: How a text is split into words.

    Raises:
        CheckpointError: A merge names or makes a token that is not in the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], pre_tokenizer: PreTokenizer) -> None:
        self._rust = rust_bpe(vocabulary, merges, pre_tokenizer.ignore_merges, byte_fallback=False)
        self._rust.pre_tokenizer = pre_tokenizer.rust()
        self._digits = pre_tokenizer.digit_groups

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        if self._digits is None:
            return rust_ids(self._rust, text)
        ids: list[int] = []
        for encoding in self._rust.encode_batch(self._digits.split(text), add_special_tokens=False):
            ids += encoding.ids
        return ids


class MarkedBytePairs:
    """Encodes text with a vocabulary of plain letters, spaces written as U+2581 and byte tokens like `<0x0A>`.

    Only runs of newlines are words of their own. A run that is itself a token needs no merges.

    Args:
        vocabulary: The tokens.
        merges: Pairs "left right", best first.
        pre_tokenizer: Says whether words are split at spaces too, and whether runs of newlines are tokens.

    Raises:
        CheckpointError: A merge names or makes a token that is not in the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], pre_tokenizer: PreTokenizer) -> None:
        self._ids = vocabulary.ids
        self._rust = rust_bpe(vocabulary, merges, pre_tokenizer.ignore_merges, byte_fallback=True)
        if pre_tokenizer.split_spaces:
            self._rust.pre_tokenizer = pre_tokenizers.Split(SPACE_MARK, "merged_with_next")
        self._whole_newlines = pre_tokenizer.whole_newlines
        self._split_spaces = pre_tokenizer.split_spaces

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        ids: list[int] = []
        for words in _LINES.findall(text.replace(" ", SPACE_MARK)):
            if words[0] == "\n":
                ids += self._newlines(words)
            else:
                prefix = SPACE_MARK if self._split_spaces and not words.startswith(SPACE_MARK) else ""
                ids += rust_ids(self._rust, prefix + words)
        return ids

    def _newlines(self, run: str) -> list[int]:
        token = self._ids.get(run) if self._whole_newlines else None
        return [token] if token is not None else rust_ids(self._rust, run)


def rust_bpe(
    vocabulary: Vocabulary, merges: Sequence[str], ignore_merges: bool, byte_fallback: bool
) -> RustTokenizer:
    """The Rust model of a ranked BPE.

    Raises:
        CheckpointError: A merge names or makes a token that is not in the vocabulary.
    """
    # The left side may itself begin with a space; then the border is sought behind it.
    pairs = [
        (left, right) if left else (" " + right.partition(" ")[0], right.partition(" ")[2])
        for left, _, right in (merge.partition(" ") for merge in merges)
    ]
    try:
        return RustTokenizer(
            models.BPE(vocabulary.ids, pairs, ignore_merges=ignore_merges, byte_fallback=byte_fallback)
        )
    except Exception as e:  # the library raises bare exceptions
        raise vocabulary.error(f"{PREFIX}merges does not fit the vocabulary: {e}") from e
