"""Log probabilities in the two shapes of the OpenAI API: chat's list of tokens and the older four columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.entrypoints.openai.protocol.chat import ChoiceLogprobs, TokenLogprob, TopLogprob
from octavo.entrypoints.openai.protocol.completion import CompletionLogprobs
from octavo.tokenizers import Tokenizer, TokenStream
from octavo.types.outputs import Logprob, PositionLogprobs

# JSON has no minus infinity; this is what the OpenAI API sends for "never".
FLOOR = -9999.0


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], positions: Sequence[PositionLogprobs] | None, top: int
) -> ChoiceLogprobs | None:
    """Chat's shape: each token with its bytes and its `top` rivals; None where nothing was asked for."""
    if positions is None:
        return None
    content = [
        TokenLogprob(
            **_entry(tokenizer, token, entries[token]),
            top_logprobs=[TopLogprob(**_entry(tokenizer, rival, lp)) for rival, lp in _ranked(entries, top)],
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
        self, token_ids: Sequence[int], positions: Sequence[PositionLogprobs | None], top: int, *, last: bool
    ) -> CompletionLogprobs:
        """Columns for the next `token_ids`, the `last` of the choice or not.

        A position without entries (the first prompt token) has nulls.
        """
        columns = CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
        for token, entries in zip(token_ids, positions, strict=True):
            text = self._stream.push(token)
            columns.text_offset.append(self._offset)
            columns.tokens.append(text)
            columns.token_logprobs.append(None if entries is None else _finite(entries[token].logprob))
            columns.top_logprobs.append(None if entries is None else self._top(token, entries, top))
            self._offset += len(text)
        if last and columns.tokens:
            columns.tokens[-1] += self._stream.finish()
        return columns

    def _top(self, token: int, entries: PositionLogprobs, top: int) -> dict[str, float]:
        kept = _ranked(entries, top)
        if all(rival != token for rival, _ in kept):
            kept.append((token, entries[token]))
        return {self._tokenizer.token_text(rival): _finite(lp.logprob) for rival, lp in kept}


def prompt_logprobs_body(
    positions: Sequence[PositionLogprobs | None] | None,
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


def _entry(tokenizer: Tokenizer, token: int, entry: Logprob) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token)
    return {"token": tokenizer.token_text(token), "logprob": _finite(entry.logprob), "bytes": list(raw)}


def _ranked(entries: PositionLogprobs, top: int) -> list[tuple[int, Logprob]]:
    """The `top` most likely entries; the chosen token is among them only if its rank says so."""
    ranked = sorted(entries.items(), key=lambda item: (item[1].rank or 0, -item[1].logprob, item[0]))
    return [item for item in ranked if (item[1].rank or 0) <= top][:top]


def _finite(value: float) -> float:
    return value if value > FLOOR else FLOOR
