"""Texts in the parameters of a request as token ids: words that may not come, the marks of reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.config import ModelConfig
from octavo.lib.errors import InvalidRequestError
from octavo.types.engine import TokenRules
from octavo.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizers.base import Tokenizer


def token_rules(sampling: SamplingParams, tokenizer: Tokenizer | None, model: ModelConfig) -> TokenRules:
    """What the engine needs to know of `bad_words` and `thinking_token_budget`.

    Raises:
        InvalidRequestError: there is no tokenizer to read the texts with; names the field.
    """
    budget = sampling.thinking_token_budget is not None
    if not (sampling.bad_words or budget):
        return TokenRules()
    if tokenizer is None:
        name = "bad_words" if sampling.bad_words else "thinking_token_budget"
        raise InvalidRequestError(f"This engine has no tokenizer, so {name} cannot be read.", param=name)
    start, end = (
        tokenizer.encode(mark, add_special_tokens=False) if budget else [] for mark in model.reasoning_marks
    )
    try:
        words = [ids for word in sampling.bad_words or () for ids in word_forms(tokenizer, word)]
    except InvalidRequestError as error:  # half a surrogate pair
        raise InvalidRequestError(error.message, param="bad_words") from error
    return TokenRules(bad_words=words, thinking_start=start, thinking_end=end)


def word_forms(tokenizer: Tokenizer, word: str) -> list[list[int]]:
    """A word as it begins a text, and as it follows a space, where that is written with other tokens (as in vLLM)."""
    bare = word.lstrip()
    begins, follows = (tokenizer.encode(text, add_special_tokens=False) for text in (bare, f" {bare}"))
    # Where the space is a token of its own the word comes after it as it begins a text.
    same = follows[-len(begins) :] == begins
    return [ids for ids in ([begins] if same else [begins, follows]) if ids]
