"""The text of one answer as its tokens come: whole characters only, and held back while it may be part of a stop string."""

from __future__ import annotations

from typing import Protocol

from octavo.tokenizers.base import Tokenizer
from octavo.tokenizers.stop import StopStrings
from octavo.tokenizers.stream import TokenStream
from octavo.types.engine import EngineRequest


class Detokenizer(Protocol):
    """Text of one answer."""

    text: str
    """All text that is settled: it will never be changed or taken back."""
    matched: str | None
    """The stop string that ended the answer."""

    def push(self, token_id: int) -> bool:
        """Add a token; True if a stop string ended the answer with it."""

    def finish(self) -> bool:
        """No more tokens: settle what was held back; True if a stop string was found in that."""


class NoText:
    """For requests that want token ids only."""

    text = ""
    matched: str | None = None

    def push(self, token_id: int) -> bool:
        """See `Detokenizer.push`."""
        del token_id
        return False

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
        self.text = ""
        self.matched: str | None = None

    def push(self, token_id: int) -> bool:
        """See `Detokenizer.push`."""
        return self._settle(self._stream.push(token_id))

    def finish(self) -> bool:
        """See `Detokenizer.finish`."""
        if self.matched is not None:
            return False
        found = self._settle(self._stream.finish())
        if not found:
            self.text += self._stops.finish()
        return found

    def _settle(self, text: str) -> bool:
        self.text += self._stops.push(text)
        self.matched = self._stops.matched
        return self.matched is not None


def make_detokenizer(request: EngineRequest, tokenizer: Tokenizer | None) -> Detokenizer:
    """The detokenizer that a request needs."""
    if tokenizer is None or not request.sampling.detokenize:
        return NoText()
    return AnswerText(request, tokenizer)
