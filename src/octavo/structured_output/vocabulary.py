"""What grammars need to know of a vocabulary: the bytes of every token, which ones are control tokens, and which end an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from octavo.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer beside a model's head.

    Args:
        tokenizer: Spells the tokens.
        size: Columns of the logits; ids that the tokenizer does not have are never allowed.
        eos_token_ids: End an answer; at least one.
    """

    tokenizer: Tokenizer
    size: int
    eos_token_ids: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Ids that can be spelled and sampled."""
        return min(self.size, self.tokenizer.vocab_size)

    @property
    def num_words(self) -> int:
        """32-bit words of a bitmask."""
        return (self.size + 31) // 32

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes that each token adds to a text that has begun; control tokens have their name."""
        return [self.tokenizer.token_bytes(token) for token in range(self.num_tokens)]

    @cached_property
    def special_ids(self) -> list[int]:
        """Control tokens, which are never part of an answer's text."""
        special = {*self.tokenizer.special_ids, *self.eos_token_ids}
        return sorted(token for token in special if token < self.num_tokens)

    def encode(self, text: str) -> list[int]:
        """Tokens of a piece of an answer."""
        return self.tokenizer.encode(text, add_special_tokens=False, parse_special=False)


def vocabulary_of(tokenizer: Tokenizer, size: int, eos_token_ids: Sequence[int]) -> Vocabulary:
    """The vocabulary of a model whose answers end with one of `eos_token_ids` (the tokenizer's own, where there is none)."""
    able = [token for token in eos_token_ids or tokenizer.eos_token_ids if token < size]
    return Vocabulary(tokenizer, size, tuple(able))
