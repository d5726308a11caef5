"""Log probabilities with their tokens as text: joined, the chosen tokens of a sequence spell its text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.types.engine import TokenLogprobs
from octavo.types.outputs import FlatLogprobs, Logprob, PositionLogprobs, PromptPositions, SampleLogprobs

if TYPE_CHECKING:
    from octavo.tokenizers.base import Tokenizer


_LONGEST_CHARACTER = 4  # bytes, in UTF-8; so no more tokens than that can hold its beginning


class LogprobDecoder:
    """Gives the tokens at successive positions of one sequence their text.

    A token that brings only the first bytes of a character has the text ''; the one that completes the character has
    all of it. Alternatives are read in the place of the chosen token, after the same bytes.

    Args:
        tokenizer: None: tokens get no text.
        before: What the sequence continues: a character that it left half said, the first position completes.
    """

    def __init__(self, tokenizer: Tokenizer | None, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if tokenizer is not None:
            tail = before[-_LONGEST_CHARACTER:]
            self._decoder.decode(b"".join(map(tokenizer.token_bytes, tail)))

    def position(self, found: TokenLogprobs) -> PositionLogprobs:
        """The dictionary of one position: the chosen token (first), then the top ones."""
        pairs = list(zip(found.token_ids, found.logprobs, strict=True))
        before = self._decoder.getstate()
        # The chosen token comes last, so that the decoder is left in its state.
        texts = {token: self._text(token, before) for token, _ in reversed(pairs)}
        self._text(pairs[0][0], before)
        top, asked = (
            pairs[1 : len(pairs) - len(found.asked_ranks)],
            pairs[len(pairs) - len(found.asked_ranks) :],
        )
        ranks = {token: rank for rank, (token, _) in enumerate(top, start=1)}
        ranks |= {token: rank for (token, _), rank in zip(asked, found.asked_ranks, strict=True)}
        ranks[pairs[0][0]] = found.rank
        return {token: Logprob(logprob, ranks[token], texts[token]) for token, logprob in pairs}

    def finish(self, positions: SampleLogprobs) -> None:
        """No more positions: what is left of an unfinished character goes to the chosen token of the last one."""
        rest = "" if self._tokenizer is None else self._decoder.decode(b"", final=True)
        if not rest or not positions:
            return
        if isinstance(positions, FlatLogprobs):
            positions.add_to_chosen(-1, rest)
            return
        chosen = next(iter(positions[-1].values()))
        chosen.decoded_token = (chosen.decoded_token or "") + rest

    def _text(self, token_id: int, before: tuple[bytes, int]) -> str | None:
        if self._tokenizer is None:
            return None
        self._decoder.setstate(before)
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))


class PromptLogprobs:
    """Log probabilities of a prompt, which come in pieces when its prefill is chunked.

    Args:
        flat: Keep them as `FlatLogprobs`.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, prompt_token_ids: list[int], *, flat: bool = False
    ) -> None:
        self._decoder = LogprobDecoder(tokenizer, prompt_token_ids[:1])
        self._length = len(prompt_token_ids)
        self.positions: PromptPositions = FlatLogprobs() if flat else []
        self.positions.append(None)

    def extend(self, found: list[TokenLogprobs]) -> None:
        """Add the next positions."""
        for one in found:
            self.positions.append(self._decoder.position(one))

    @property
    def complete(self) -> bool:
        """Whether every position of the prompt is there."""
        return len(self.positions) >= self._length
