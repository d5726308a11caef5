"""WordPiece ("bert" vocabularies), on the Rust `tokenizers` library.

A GGUF file writes the start of a word with U+2581 and leaves out WordPiece's "##"; here both are put back.
"""

from __future__ import annotations

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models, normalizers, pre_tokenizers

from octavo.tokenizers.gguf.vocabulary import Kind, Vocabulary
from octavo.tokenizers.pieces import SPACE_MARK
from octavo.tokenizers.rust import rust_ids

CONTINUATION = "##"


class WordPiece:
    """Encodes text by the longest matching pieces of each word.

    Args:
        vocabulary: The tokens.
        lowercase: Whether the vocabulary is uncased.
        strip_accents: Whether accents are left out.

    Raises:
        CheckpointError: There is no token for unknown words.
    """

    def __init__(self, vocabulary: Vocabulary, lowercase: bool, strip_accents: bool) -> None:
        texts = wordpiece_texts(vocabulary)
        unknown = texts[vocabulary.special["unk"]] if "unk" in vocabulary.special else "[UNK]"
        ids = {text: token_id for token_id, text in enumerate(texts)}
        if unknown not in ids:
            raise vocabulary.error(f"the vocabulary has no token {unknown!r} for unknown words")
        self._rust = RustTokenizer(models.WordPiece(ids, unk_token=unknown))
        self._rust.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
        self._rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        return rust_ids(self._rust, text)


def wordpiece_texts(vocabulary: Vocabulary) -> list[str]:
    """Text of each id in WordPiece's own spelling."""
    plain = frozenset({Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED, Kind.UNUSED})
    return [
        text if kind in plain else _wordpiece(text)
        for text, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True)
    ]


def _wordpiece(text: str) -> str:
    if text.startswith(SPACE_MARK):
        return text[len(SPACE_MARK) :]
    bracketed = len(text) > 2 and text.startswith("[") and text.endswith("]")
    return text if bracketed else CONTINUATION + text
