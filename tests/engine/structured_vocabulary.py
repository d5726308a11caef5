"""A vocabulary for tiny models: bytes, some words that hold several of them, and ends of answers."""

from __future__ import annotations

from octavo.structured_output.vocabulary import Vocabulary
from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.pieces import Pieces

EOS, THINK, END_THINK = 256, 257, 258
SPECIAL = {EOS: b"<eos>", THINK: b"<think>", END_THINK: b"</think>"}
WORDS = [
    b'":',
    b'", "',
    b'{"',
    b"name",
    b"na",
    b"true",
    b"false",
    b"null",
    b"12",
    b"00",
    "\u00e4".encode(),
    b"  ",
]
FIRST_WORD = 259
SIZE = 301


def piece(token: int) -> bytes:
    """The bytes of a token; nothing for ids that spell nothing."""
    if token < 256:
        return bytes([token])
    word = token - FIRST_WORD
    return SPECIAL.get(token) or (WORDS[word] if 0 <= word < len(WORDS) else b"")


class LongestFirst:
    """Takes the longest token at each place."""

    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        data, ids = text.encode(), []
        known = {piece(token): token for token in range(SIZE) if token not in SPECIAL or parse_special}
        while data:
            size = next(size for size in range(8, 0, -1) if data[:size] in known)
            ids.append(known[data[:size]])
            data = data[size:]
        return ids


def tokenizer() -> Tokenizer:
    """The tokenizer of `vocabulary`."""
    info = TokenizerInfo(SIZE, eos_token_id=EOS, eos_token_ids=(EOS,), special_ids=frozenset(SPECIAL))
    return Tokenizer(info, LongestFirst(), Pieces(piece))


def vocabulary() -> Vocabulary:
    """301 tokens, as the tiny models have."""
    return Vocabulary(tokenizer(), SIZE, (EOS,))


def text_of(ids: list[int]) -> str:
    """What an answer says, its end left out; raises where that is no UTF-8."""
    return b"".join(piece(token) for token in ids if token != EOS).decode()
