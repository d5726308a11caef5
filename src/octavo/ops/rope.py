"""Rotary position embedding."""

from __future__ import annotations

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for
from octavo.ops.operands import address, require

_MAX_ROT_DIM = 1024


def rope(
    x: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Rotate the first `rot_dim` dimensions of each head in place (Su et al., 2021); return `x`.

    Args:
        x: [M, heads, head_dim] with a dense last dimension; rows and heads may be strided.
        positions: [M] int64, below `max_pos`.
        cos_sin: [max_pos, rot_dim] float32: rot_dim / 2 cosines, then the sines.
        interleaved: Pairs are (0, 1), (2, 3), ... instead of (i, i + rot_dim / 2).

    Raises:
        ValueError: A position outside of the table, or shapes that do not fit.
    """
    max_pos, rot_dim = cos_sin.shape
    require(x.dim() == 3, "x must have 3 dimensions (rows, heads, head_dim), got {}", x.dim())
    rows, heads, head_dim = x.shape
    require(
        rot_dim % 2 == 0 and rot_dim <= min(head_dim, _MAX_ROT_DIM),
        "cos_sin has rot_dim {}, must be even and at most head_dim {}",
        rot_dim,
        head_dim,
    )
    native = native_for(x)
    if native is None:
        return reference.rope(x, positions, cos_sin, interleaved)
    row_stride, head_stride, element_stride = x.stride()
    require(element_stride == 1, "x must have a dense last dimension")
    native.rope(
        x.data_ptr(),
        address("positions", positions, torch.int64, (rows,)),
        address("cos_sin", cos_sin, torch.float32, (max_pos, rot_dim)),
        rows,
        heads,
        row_stride,
        head_stride,
        rot_dim,
        max_pos,
        interleaved,
    )
    return x
