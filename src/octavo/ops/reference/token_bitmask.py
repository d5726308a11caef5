"""Token masks, bit by bit."""

from __future__ import annotations

import torch


def apply_token_bitmask(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """Make tokens impossible (-inf) whose bit is not set, in place.

    Args:
        logits: [R, V].
        bitmask: [n, W] int32; bit i % 32 of word i // 32 belongs to token i.
        rows: [n] int64, distinct.
    """
    token = torch.arange(logits.shape[1], device=logits.device)
    words = bitmask.to(logits.device)[:, token // 32]
    allowed = (words >> (token % 32).to(torch.int32)) & 1
    logits[rows] = logits[rows].masked_fill(allowed == 0, float("-inf"))
