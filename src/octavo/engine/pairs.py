"""Pairs of texts for scores: which goes with which, as one prompt, and the cosine of two embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import TYPE_CHECKING

from octavo.lib.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.engine.input import TokensPrompt
    from octavo.tokenizers.base import Tokenizer


def paired(first: Sequence[str], second: Sequence[str], names: tuple[str, str]) -> list[tuple[str, str]]:
    """One text with each of many, or two lists of one length pair by pair.

    Raises:
        InvalidRequestError: one is empty, or their lengths do not go together; names the field.
    """
    for name, texts in zip(names, (first, second), strict=True):
        if not texts:
            raise InvalidRequestError(f"{name} must hold at least one text.", param=name)
    if len(first) == 1:
        return [(first[0], text) for text in second]
    if len(first) != len(second):
        raise InvalidRequestError(
            f"{names[0]} has {len(first)} texts and {names[1]} {len(second)}: give one with many, or as many on both sides.",
            param=names[0],
        )
    return list(zip(first, second, strict=True))


def pair_prompt(
    tokenizer: Tokenizer | None, first: str, second: str, limit: int | None = None
) -> TokensPrompt:
    """Two texts as one prompt for a cross-encoder, the second one cut where both are longer than `limit` tokens.

    As the templates of decoders' tokenizers for pairs have it: what belongs around a text, around each of them.

    Raises:
        InvalidRequestError: there is no tokenizer.
    """
    if tokenizer is None:
        raise InvalidRequestError("This engine has no tokenizer, which pairs of texts need.", param="prompt")
    ids = tokenizer.encode(first) + tokenizer.encode(second)
    return {"prompt_token_ids": ids if limit is None else ids[:limit]}


def cosines(vectors: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Of each pair, from the vectors of its texts; 0 where one has no length."""
    lengths = {text: math.sqrt(sum(map(mul, vector, vector))) for text, vector in vectors.items()}
    return [
        sum(map(mul, vectors[one], vectors[two])) / (lengths[one] * lengths[two] or 1.0) for one, two in pairs
    ]
