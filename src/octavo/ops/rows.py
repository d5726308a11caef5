"""The residual sum, the factor on embeddings, and picking rows."""

from __future__ import annotations

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for, new_output
from octavo.ops.operands import address, require


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x + y` of two [M, H]; rows may be strided, the result is dense."""
    native = native_for(x)
    if native is None:
        return reference.add(x, y)
    require(
        x.shape == y.shape and x.dim() == 2 and y.dtype is torch.float32,
        "x and y must both be float32 [rows, columns] of one shape, got {} and {}",
        x.shape,
        y.shape,
    )
    require(x.stride(1) == 1 and y.stride(1) == 1, "x and y must have a dense last dimension")
    rows, cols = x.shape
    out = new_output(rows, cols)
    native.add(x.data_ptr(), y.data_ptr(), out.data_ptr(), rows, x.stride(0), y.stride(0), cols)
    return out


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """`x * factor` of [M, H], in float32."""
    native = native_for(x)
    if native is None:
        return reference.scale(x, factor)
    require(x.dim() == 2, "x must have 2 dimensions (rows, columns), got {}", x.dim())
    rows, cols = x.shape
    source = x.contiguous()
    out = new_output(rows, cols)
    native.scale(source.data_ptr(), out.data_ptr(), rows, cols, factor)
    return out


def select_rows(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """`x[rows]`: [M, H] and [R] int64 -> [R, H].

    Raises:
        ValueError: a row outside of [0, M).
    """
    native = native_for(x)
    if native is None:
        return reference.select_rows(x, rows)
    require(
        x.dim() == 2 and x.stride(1) == 1, "x must have 2 dimensions, the last one dense, got {}", x.shape
    )
    count, cols = rows.shape[0], x.shape[1]
    ids = address("rows", rows, torch.int64, (count,))
    out = new_output(count, cols)
    native.select_rows(x.data_ptr(), x.stride(0), x.shape[0], ids, count, cols, out.data_ptr())
    return out
