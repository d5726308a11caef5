"""Incremental detokenisation: the text of an answer as its tokens come, whole characters only."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from octavo.tokenizers.base import Tokenizer

_LONGEST_CHARACTER = 4  # bytes, in UTF-8
_new_decoder = codecs.getincrementaldecoder("utf-8")


class TokenStream:
    """Decodes one answer, token by token. What it returned, joined, is what decoding all tokens at once returns.

    A character whose bytes are spread over tokens is held back until it is whole. Bytes that can no longer become
    a character are U+FFFD at once. Each token costs the same, however long the answer.

    Args:
        tokenizer: Spells the tokens.
        prompt_token_ids: What the answer continues. An answer to a prompt keeps its leading space, and completes a
            character that the prompt left half said.
        skip_special_tokens: Leave out control tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> None:
        self._pieces = tokenizer.pieces
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = _new_decoder("replace")
        self._begun = False
        self._start_after(prompt_token_ids)

    def push(self, token_id: int) -> str:
        """The text that a token settles; often its own, sometimes none. An id without a token has none."""
        return self._utf8.decode(self._piece(token_id))

    def push_all(self, token_ids: Iterable[int]) -> str:
        """The text that several tokens settle, for less than `push` of each would cost."""
        return self._utf8.decode(b"".join(map(self._piece, token_ids)))

    def finish(self) -> str:
        """No more tokens: bytes of a character that never became whole are U+FFFD."""
        return self._utf8.decode(b"", final=True)

    def _piece(self, token_id: int) -> bytes:
        """The bytes that a token adds."""
        if token_id in self._skipped:
            return b""
        if self._begun:
            return self._pieces.piece(token_id)
        self._begun = True
        return self._pieces.first_piece(token_id)

    def _start_after(self, prompt_token_ids: Sequence[int]) -> None:
        tail = b""
        for token_id in reversed(prompt_token_ids):
            if token_id in self._skipped:
                continue
            self._begun = True
            tail = self._pieces.piece(token_id) + tail
            if len(tail) >= _LONGEST_CHARACTER:
                break
        self._utf8.decode(tail)  # keeps the bytes of a character that is not whole yet
