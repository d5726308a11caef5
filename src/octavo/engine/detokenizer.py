"""The text of one answer as its tokens come: whole characters only, and held back while it may be part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.tokenizers.base import Tokenizer
from octavo.tokenizers.stop import StopStrings
from octavo.tokenizers.stream import TokenStream
from octavo.types.engine import EngineRequest

# Tokens decoded at a time where nobody looks at the text: enough to be cheap, too few for anybody to wait for.
_BATCH = 64


class Detokenizer(Protocol):
    """Text of one answer."""

    matched: str | None
    """The stop string that ended the answer."""

    @property
    def text(self) -> str:
        """All text that is settled: it will never be changed or taken back."""

    def push(self, token_ids: Sequence[int]) -> int:
        """Add tokens up to one with which a stop string ends the answer; how many were added."""

    def finish(self) -> bool:
        """No more tokens: settle what was held back; True if a stop string was found in that."""


class NoText:
    """For requests that want token ids only."""

    text = ""
    matched: str | None = None

    def push(self, token_ids: Sequence[int]) -> int:
        """See `Detokenizer.push`."""
        return len(token_ids)

    def finish(self) -> bool:
        """See `Detokenizer.finish`."""
        return False


class AnswerText:
    """`Detokenizer` by incremental decoding.

    Args:
        request: Its prompt, its stop strings, and whether special tokens show.
        tokenizer: Spells the tokens.
    """

    def __init__(self, request: EngineRequest, tokenizer: Tokenizer) -> None:
        sampling = request.sampling
        self._stream = TokenStream(tokenizer, request.prompt_token_ids, sampling.skip_special_tokens)
        self._stops = StopStrings(sampling.stop_strings, include=sampling.include_stop_str_in_output)
        self._awaits_stop = bool(sampling.stop_strings)
        self._text = ""
        self._unread: list[int] = []
        """Tokens that are not decoded yet: as long as no stop string can end the answer, that can wait."""
        self.matched: str | None = None

    @property
    def text(self) -> str:
        """See `Detokenizer.text`."""
        if self._unread:
            self._text += self._stream.push_all(self._unread)
            self._unread.clear()
        return self._text

    def push(self, token_ids: Sequence[int]) -> int:
        """See `Detokenizer.push`."""
        if self._awaits_stop:
            return self._push_each(token_ids)
        self._unread += token_ids
        if len(self._unread) >= _BATCH:
            _ = self.text
        return len(token_ids)

    def finish(self) -> bool:
        """See `Detokenizer.finish`."""
        if self.matched is not None:
            return False
        self._text = self.text
        found = self._settle(self._stream.finish())
        if not found:
            self._text += self._stops.finish()
        return found

    def _push_each(self, token_ids: Sequence[int]) -> int:
        for count, token_id in enumerate(token_ids, start=1):
            if self._settle(self._stream.push(token_id)):
                return count
        return len(token_ids)

    def _settle(self, text: str) -> bool:
        self._text += self._stops.push(text)
        self.matched = self._stops.matched
        return self.matched is not None


def make_detokenizer(request: EngineRequest, tokenizer: Tokenizer | None) -> Detokenizer:
    """The detokenizer that a request needs."""
    if tokenizer is None or not request.sampling.detokenize:
        return NoText()
    return AnswerText(request, tokenizer)
