"""Rotary position embedding in plain torch (Su et al., 2021)."""

from __future__ import annotations

import torch


def rope(
    x: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Rotate the first `rot_dim` dimensions of each head in place; return `x`.

    Args:
        x: [M, heads, head_dim], any strides.
        positions: [M] int64.
        cos_sin: [max_pos, rot_dim]: cosines, then sines, rot_dim / 2 of each.
        interleaved: Pairs are (0, 1), (2, 3), ... (GPT-J) instead of (i, i + rot_dim / 2) (GPT-NeoX, Llama).
    """
    rot_dim = cos_sin.shape[1]
    half = rot_dim // 2
    angles = cos_sin[positions].unsqueeze(1)  # [M, 1, rot_dim]
    cos, sin = angles[..., :half], angles[..., half:]
    rotated = x[..., :rot_dim]
    if interleaved:
        first, second = rotated[..., 0::2], rotated[..., 1::2]
    else:
        first, second = rotated[..., :half], rotated[..., half:]
    new_first = first * cos - second * sin
    new_second = second * cos + first * sin
    first.copy_(new_first)
    second.copy_(new_second)
    return x
