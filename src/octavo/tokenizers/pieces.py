"""From ids to bytes: what each token adds to a text.

Every supported decoder has one form: a token adds fixed bytes, except that the first token of a text may add
others (SentencePiece and WordPiece write a space between words, not before the first). So a stream can be decoded
token by token, and gives exactly what decoding the whole would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

SPACE_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class Pieces:
    """The bytes of each token, spelled at first use.

    Args:
        spell: The bytes that a token adds to a text that has begun; nothing for an id without a token.
        spell_first: The bytes that a token adds as the first of a text; by default the same.
    """

    def __init__(
        self, spell: Callable[[int], bytes], spell_first: Callable[[int], bytes] | None = None
    ) -> None:
        self._spell = spell
        self._spell_first = spell_first
        self._spelled: dict[int, bytes] = {}

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text that has begun."""
        piece = self._spelled.get(token_id)
        if piece is None:
            piece = self._spelled[token_id] = self._spell(token_id)
        return piece

    def length(self, token_id: int) -> int:
        """Number of bytes of `piece`, which is not kept: for a look at the whole vocabulary."""
        return len(self._spelled.get(token_id) or self._spell(token_id))

    def first_piece(self, token_id: int) -> bytes:
        """The bytes that a token adds as the first of a text."""
        return self._spell_first(token_id) if self._spell_first else self.piece(token_id)

    def join(self, ids: Sequence[int]) -> bytes:
        """The bytes of a whole text."""
        if not ids:
            return b""
        return self.first_piece(ids[0]) + b"".join(map(self.piece, ids[1:]))


def byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's `bytes_to_unicode`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(0x100 + n) for n in range(256))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


_TO_LATIN1 = {ord(letter): chr(byte) for byte, letter in enumerate(byte_alphabet())}
_ALPHABET = frozenset(byte_alphabet())


def byte_level(text: str) -> bytes:
    """Bytes of a byte-level token; one with a letter outside the alphabet stands for itself."""
    if _ALPHABET.issuperset(text):
        return text.translate(_TO_LATIN1).encode("latin-1")
    return text.encode("utf-8")


def byte_fallback(text: str) -> bytes | None:
    """The byte that a token like `<0x0A>` stands for, or None for any other token."""
    match = _BYTE_TOKEN.match(text)
    return bytes.fromhex(match[1]) if match else None


def space_marked(text: str) -> bytes:
    """Bytes of a SentencePiece token, whose spaces are written as U+2581."""
    return text.replace(SPACE_MARK, " ").encode("utf-8")


def without_leading_space(spell: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """The spelling of a first token where the text gets a space before it when encoded."""
    return lambda token_id: spell(token_id).removeprefix(b" ")


def spell_with(
    vocabulary: Mapping[int, str] | Sequence[str],
    spell: Callable[[str], bytes],
    literal: Callable[[int], bool],
) -> Callable[[int], bytes]:
    """Spell tokens by their text; those for which `literal` holds (added tokens) stand for themselves."""
    texts = vocabulary if isinstance(vocabulary, Mapping) else dict(enumerate(vocabulary))

    def spelled(token_id: int) -> bytes:
        text = texts.get(token_id)
        if text is None:
            return b""
        return text.encode("utf-8") if literal(token_id) else spell(text)

    return spelled
