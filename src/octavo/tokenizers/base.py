"""What a tokenizer is to the rest of the engine: ids from text, text from ids, and what the model's author says about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers.pieces import Pieces

# No vocabulary's longest token is shorter: below this, a text may fit without a look at the vocabulary.
_SHORT_SPELLING = 4


class Encoder(Protocol):
    """Turns text into ids; one implementation per kind of vocabulary."""

    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Ids of `text`.

        Args:
            text: Any text without unpaired surrogates.
            add_special_tokens: Put what the model expects around a text (BOS, EOS, CLS, SEP).
            parse_special: Read the spelling of a control token in the text as that token, not as letters.
        """
        ...


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """Facts about a vocabulary.

    Attributes:
        vocab_size: Number of ids; every id is below it. A model's output layer may be padded beyond it.
        bos_token_id: The token that begins a text, if the model has one.
        eos_token_id: The token that ends an answer, if the model has one.
        eos_token_ids: All tokens that end an answer, ascending, `eos_token_id` among them.
        pad_token_id: The padding token, if there is one.
        special_ids: Control tokens: `skip_special_tokens` leaves them out of a text.
        add_bos: Whether `encode` puts BOS before a text.
        add_eos: Whether `encode` puts EOS (or SEP) after a text.
        special_tokens: The names a chat template knows ("bos_token", "eos_token", ...) and their spelling.
        chat_templates: Name to template; the usual one is "default".
    """

    vocab_size: int
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None
    special_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    add_eos: bool = False
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_templates: Mapping[str, str] = field(default_factory=dict)


class Tokenizer:
    """A vocabulary with its rules. Immutable, and safe to share between threads.

    Args:
        info: Facts about the vocabulary.
        encoder: The way from text to ids.
        pieces: The way from ids to bytes of text.
    """

    def __init__(self, info: TokenizerInfo, encoder: Encoder, pieces: Pieces) -> None:
        self.info = info
        self.pieces = pieces
        self._encoder = encoder

    @property
    def vocab_size(self) -> int:
        """Number of ids; every id is below it."""
        return self.info.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, if the model has one."""
        return self.info.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends an answer, if the model has one."""
        return self.info.eos_token_id

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """All tokens that end an answer, ascending."""
        return self.info.eos_token_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens, which `skip_special_tokens` leaves out."""
        return self.info.special_ids

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The names a chat template knows ("bos_token", ...) and their spelling."""
        return self.info.special_tokens

    @property
    def chat_template(self) -> str | None:
        """The usual chat template, if the model has one."""
        return self.info.chat_templates.get("default")

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """All chat templates by name."""
        return self.info.chat_templates

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """Ids of `text`; see `Encoder.encode`.

        A rendered chat already holds what the model expects around it, so it is encoded with
        `add_special_tokens=False`; a BOS that its template writes is then the only one.

        Raises:
            InvalidRequestError: The text holds an unpaired surrogate, which is no character.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as e:
            raise InvalidRequestError(
                f"The text holds an unpaired surrogate (U+{ord(text[e.start]):04X}) at character {e.start}, "
                "which no encoding can carry.",
                param="prompt",
            ) from e
        return self._encoder.encode(text, add_special_tokens, parse_special)

    def may_fit(self, text: str, max_tokens: int) -> bool:
        """False if `text` is longer than `max_tokens` tokens can spell: then it need not be read to be refused.

        White space that the tokenizer would drop counts too.
        """
        return len(text) <= max_tokens * _SHORT_SPELLING or len(text) <= max_tokens * self._longest_spelling

    @cached_property
    def _longest_spelling(self) -> int:
        """Bytes of the longest token."""
        return max(map(self.pieces.length, range(self.vocab_size)))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text that `ids` spell; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InvalidRequestError: An id is not in the vocabulary.
        """
        self.check_ids(ids)
        skipped = self.info.special_ids if skip_special_tokens else frozenset()
        return self.pieces.join([i for i in ids if i not in skipped]).decode("utf-8", "replace")

    def check_ids(self, ids: Iterable[int], param: str = "tokens") -> None:
        """Refuse ids that are not in the vocabulary.

        Raises:
            InvalidRequestError: Names the first such id and the limit.
        """
        for token_id in ids:
            if not 0 <= token_id < self.info.vocab_size:
                raise InvalidRequestError(
                    f"Token id {token_id} is not in the vocabulary, whose ids run from 0 to {self.info.vocab_size - 1}.",
                    param=param,
                )

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text that has already begun. An id without a token adds nothing."""
        return self.pieces.piece(token_id)

    def token_text(self, token_id: int) -> str:
        """A token as plain text, alone; bytes that are not UTF-8 become U+FFFD."""
        return self.pieces.piece(token_id).decode("utf-8", "replace")
