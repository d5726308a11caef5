"""Changes to logits that a request asked for. All rows of a batch are changed in a few vectorised operations.

Each row's result depends on that row alone: every (row, token) pair occurs at most once in a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.sampling.history import TokenHistory


@dataclass(frozen=True, slots=True)
class Entries:
    """A sparse list of positions in a [R, V] matrix, with a value for each."""

    rows: torch.Tensor
    """[n] int64."""
    ids: torch.Tensor
    """[n] int64."""
    values: torch.Tensor
    """[n] float32."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """Seen tokens of the rows that penalise repetition, and each one's row parameters."""

    entries: Entries
    """`values` are the counts in the output."""
    repetition: torch.Tensor
    """[n] float32, as are the other two."""
    frequency: torch.Tensor
    presence: torch.Tensor


@dataclass(frozen=True, slots=True)
class PenaltyRow:
    """One request's penalties."""

    row: int
    history: TokenHistory
    repetition: float
    frequency: float
    presence: float


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """Rows of which only some tokens may come."""

    rows: torch.Tensor
    """[n] int64, distinct."""
    bits: torch.Tensor
    """[n, W] int32; see `ops.apply_token_bitmask`."""


def gather_masks(rows: Sequence[tuple[int, torch.Tensor]]) -> TokenMasks:
    """Stack (row, mask [W] int32) pairs."""
    return TokenMasks(torch.tensor([row for row, _ in rows]), torch.stack([bits for _, bits in rows]))


def gather_entries(rows: Sequence[tuple[int, NDArray[np.int64], NDArray[np.float32]]]) -> Entries:
    """Concatenate (row, token ids, values) lists."""
    lengths = [len(ids) for _, ids, _ in rows]
    return Entries(
        torch.from_numpy(np.repeat(np.array([row for row, _, _ in rows], np.int64), lengths)),
        torch.from_numpy(np.concatenate([ids for _, ids, _ in rows])),
        torch.from_numpy(np.concatenate([values for _, _, values in rows])),
    )


def gather_penalties(rows: Sequence[PenaltyRow]) -> Penalties:
    """Concatenate the seen tokens of several requests."""
    lengths = [len(item.history.ids) for item in rows]
    entries = gather_entries([(item.row, item.history.ids, item.history.counts) for item in rows])

    def spread(values: list[float]) -> torch.Tensor:
        return torch.from_numpy(np.repeat(np.array(values, np.float32), lengths))

    return Penalties(
        entries,
        spread([item.repetition for item in rows]),
        spread([item.frequency for item in rows]),
        spread([item.presence for item in rows]),
    )


def add_bias(logits: torch.Tensor, bias: Entries) -> None:
    """Add each value to its logit, in place."""
    logits[bias.rows, bias.ids] += bias.values


def ban(logits: torch.Tensor, tokens: Entries) -> None:
    """Make tokens impossible, in place."""
    logits[tokens.rows, tokens.ids] = -torch.inf


def force(logits: torch.Tensor, rows: Sequence[tuple[int, int]]) -> None:
    """Leave a row one token, whatever was made of it, in place."""
    for row, token in rows:
        logits[row] = -torch.inf
        logits[row, token] = 0.0


def penalize(logits: torch.Tensor, penalties: Penalties) -> None:
    """Apply repetition, frequency and presence penalties, in place.

    Repetition as in CTRL (Keskar et al. 2019) and transformers: a positive logit is divided, a negative one multiplied,
    for tokens of prompt and output. Frequency and presence as in the OpenAI API: subtracted, for output tokens only.
    """
    rows, ids, counts = penalties.entries.rows, penalties.entries.ids, penalties.entries.values
    seen = logits[rows, ids]
    seen = torch.where(seen > 0, seen / penalties.repetition, seen * penalties.repetition)
    seen = seen - penalties.frequency * counts
    logits[rows, ids] = seen - penalties.presence * (counts > 0)
