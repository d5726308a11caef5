"""Log probabilities in the two shapes of the OpenAI API: chat's list of tokens and the older four columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.entrypoints.openai.protocol.chat import ChoiceLogprobs, TokenLogprob, TopLogprob
from octavo.entrypoints.openai.protocol.completion import CompletionLogprobs
from octavo.tokenizers import Tokenizer, TokenStream
from octavo.types.outputs import Logprob, PositionLogprobs, PromptPositions, SampleLogprobs

# JSON has no minus infinity; this is what the OpenAI API sends for "never".
FLOOR = -9999.0


@dataclass(frozen=True)
class LogprobStyle:
    """How a request wants its log probabilities shown.

    Args:
        top: Most likely tokens shown at each position.
        asked: Tokens shown at each position whatever their rank (`logprob_token_ids`).
        as_ids: Write tokens as `token_id:17` (`return_tokens_as_token_ids`).
    """

    top: int
    asked: frozenset[int] = frozenset()
    as_ids: bool = False

    def name(self, tokenizer: Tokenizer, token_id: int) -> str:
        """A token as it is written alone."""
        return f"token_id:{token_id}" if self.as_ids else tokenizer.token_text(token_id)

    def shown(self, entries: PositionLogprobs) -> list[tuple[int, Logprob]]:
        """Entries by rank; the chosen token is among them only if its rank says so, or if it was asked for."""
        ranked = sorted(entries.items(), key=lambda item: (item[1].rank or 0, -item[1].logprob, item[0]))
        best = [token for token, entry in ranked if (entry.rank or 0) <= self.top][: self.top]
        return [item for item in ranked if item[0] in best or item[0] in self.asked]


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], positions: SampleLogprobs | None, style: LogprobStyle
) -> ChoiceLogprobs | None:
    """Chat's shape: each token with its bytes and its rivals; None where nothing was asked for."""
    if positions is None:
        return None

    def entry(token: int, found: Logprob) -> dict[str, Any]:
        raw = list(tokenizer.token_bytes(token))
        return {"token": style.name(tokenizer, token), "logprob": _finite(found.logprob), "bytes": raw}

    content = [
        TokenLogprob(
            **entry(token, entries[token]),
            top_logprobs=[TopLogprob(**entry(rival, found)) for rival, found in style.shown(entries)],
        )
        for token, entries in zip(token_ids, positions, strict=True)
    ]
    return ChoiceLogprobs(content=content)


class CompletionLogprobsBuilder:
    """The older shape, for one choice over its whole stream.

    A token's string is the text that it adds, so that the strings join to the answer even where a character is spread
    over several tokens: the last of these carries it, and the last token of all what of a character is left unfinished.

    Args:
        prompt_token_ids: What the answer continues; empty if the prompt itself is echoed.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._stream = TokenStream(tokenizer, prompt_token_ids, skip_special_tokens)
        self._offset = 0

    def build(
        self,
        token_ids: Sequence[int],
        positions: Sequence[PositionLogprobs | None],
        style: LogprobStyle,
        *,
        last: bool,
    ) -> CompletionLogprobs:
        """Columns for the next `token_ids`, the `last` of the choice or not.

        A position without entries (the first prompt token) has nulls.
        """
        columns = CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
        for token, entries in zip(token_ids, positions, strict=True):
            text = self._stream.push(token)
            columns.text_offset.append(self._offset)
            columns.tokens.append(style.name(self._tokenizer, token) if style.as_ids else text)
            columns.token_logprobs.append(None if entries is None else _finite(entries[token].logprob))
            columns.top_logprobs.append(None if entries is None else self._top(token, entries, style))
            self._offset += len(text)
        if last and columns.tokens and not style.as_ids:
            columns.tokens[-1] += self._stream.finish()
        return columns

    def _top(self, token: int, entries: PositionLogprobs, style: LogprobStyle) -> dict[str, float]:
        kept = style.shown(entries)
        if all(rival != token for rival, _ in kept):
            kept.append((token, entries[token]))
        return {style.name(self._tokenizer, rival): _finite(found.logprob) for rival, found in kept}


def prompt_logprobs_body(
    positions: PromptPositions | None,
) -> list[dict[str, Any] | None] | None:
    """`prompt_logprobs` as vLLM shapes them: a dictionary a position, by token id."""
    if positions is None:
        return None
    return [
        None if entries is None else {str(t): _plain(lp) for t, lp in entries.items()}
        for entries in positions
    ]


def _plain(entry: Logprob) -> dict[str, Any]:
    return {"logprob": _finite(entry.logprob), "rank": entry.rank, "decoded_token": entry.decoded_token}


def _finite(value: float) -> float:
    return value if value > FLOOR else FLOOR
