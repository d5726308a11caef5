"""Which tokens may come, as bits: what grammars and lists of allowed tokens hand to the sampler.

A mask is [W] int32 with W = ceil(V / 32); bit i % 32 (from the lowest) of word i // 32 is set where token i may come. This
is the layout of XGrammar and llguidance, so that their masks are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops import reference
from octavo.ops.dispatch import native_for
from octavo.ops.operands import require

_WORD = 32
_NEVER = np.array(-np.inf, np.float32).view(np.int32)[()]
_FEW = 8  # one word in so many


def bitmask_words(vocab_size: int) -> int:
    """Words of a mask."""
    return -(-vocab_size // _WORD)


def token_bitmask(token_ids: Iterable[int], vocab_size: int) -> torch.Tensor:
    """The mask [W] int32 that lets these tokens come.

    Raises:
        ValueError: an id outside of the vocabulary.
    """
    ids = np.fromiter(token_ids, np.int64)
    bits = np.zeros(bitmask_words(vocab_size) * _WORD, np.uint8)
    require(
        not len(ids) or (ids.min() >= 0 and ids.max() < vocab_size), "a token id is outside the vocabulary"
    )
    bits[ids] = 1
    return torch.from_numpy(np.packbits(bits, bitorder="little").view(np.int32))


def apply_token_bitmask(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """Make tokens impossible (-inf) whose bit is not set, in place. Other logits keep their bits.

    Args:
        logits: [R, V].
        bitmask: [n, W] int32, one mask for each of `rows`.
        rows: [n] int64, distinct rows of `logits`.

    Raises:
        ValueError: a mask of another vocabulary.
    """
    words = bitmask_words(logits.shape[1])
    require(
        bitmask.shape == (len(rows), words) and bitmask.dtype is torch.int32,
        "bitmask is {}, must be int32 [{}, {}]", tuple(bitmask.shape), len(rows), words,
    )  # fmt: skip
    if native_for(logits) is None:
        reference.apply_token_bitmask(logits, bitmask, rows)
        return
    masks: NDArray[np.int32] = bitmask.numpy()
    target = logits.numpy()
    for row, mask in zip(rows.tolist(), masks, strict=True):
        _mask_row(target[row], mask)


def _mask_row(logits: NDArray[np.float32], mask: NDArray[np.int32]) -> None:
    """One row [V]. Most masks of grammars allow nearly nothing or nearly everything: then only those words are looked into."""
    some, gaps = np.flatnonzero(mask), np.flatnonzero(mask != -1)
    if _FEW * len(some) < len(mask):
        allowed = _ids(some, mask[some], len(logits))
        kept = logits[allowed]
        logits[:] = -np.inf
        logits[allowed] = kept
    elif _FEW * len(gaps) < len(mask):
        logits[_ids(gaps, ~mask[gaps], len(logits))] = -np.inf
    else:
        _select(logits.view(np.int32), mask)


def _select(logits: NDArray[np.int32], mask: NDArray[np.int32]) -> None:
    """One row [V] as bits: a few passes without a branch, where masks with many gaps would be mispredicted."""
    keep = np.unpackbits(mask.view(np.uint8), count=len(logits), bitorder="little").astype(np.int32)
    np.negative(keep, out=keep)  # all bits of a token that may come
    logits &= keep
    np.invert(keep, out=keep)
    keep &= _NEVER
    logits |= keep


def _ids(words: NDArray[np.int64], bits: NDArray[np.int32], vocab_size: int) -> NDArray[np.int64]:
    """Tokens [n] whose bits are set in some words [m] of a mask."""
    tokens = (words[:, None] * _WORD + np.arange(_WORD)).ravel()
    ids: NDArray[np.int64] = tokens[np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)]
    return ids[ids < vocab_size]
