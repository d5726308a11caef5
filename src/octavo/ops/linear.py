"""Matrix products with packed weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for, new_output
from octavo.ops.operands import address
from octavo.ops.packing import PackedWeight


def linear(
    x: torch.Tensor,
    weights: Sequence[PackedWeight],
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`x @ W.T (+ bias)` for each weight, the outputs side by side: [M, K] -> [M, sum of N_i].

    Quantised weights meet rows quantised to int8 as llama.cpp does it (Q8_0 and Q8_1 per 32, Q8_K per 256), once per
    form, however many weights share them. Each output row depends on its own input row only, bit for bit.

    Args:
        x: [M, K] float32; rows may be strided.
        weights: At least one; all with K columns.
        bias: [sum of N_i], added last.
        out: [M, sum of N_i] float32 with dense rows, to write into.
    """
    native = native_for(x)
    if native is None:
        return reference.linear(x, weights, bias, out)
    if x.dim() != 2 or not weights:
        raise ValueError(
            f"linear needs x of 2 dimensions and weights, got {x.dim()} dimensions, {len(weights)} weights"
        )
    row_stride, column_stride = x.stride()
    rows, cols = x.shape
    if column_stride != 1:
        x, row_stride = x.contiguous(), cols
    total = 0
    handles = []
    for weight in weights:
        if weight.cols != cols:
            raise ValueError(f"x has {cols} columns, the weight {weight!r} wants {weight.cols}")
        total += weight.rows
        handles.append(weight.native)
    out_stride = total
    if out is None:
        out = new_output(rows, total)
    else:
        out_stride = _checked_stride(out, rows, total)
    bias_at = 0 if bias is None else address("bias", bias, torch.float32, (total,))
    if rows > 0:
        native.linear(x.data_ptr(), row_stride, rows, handles, bias_at, out.data_ptr(), out_stride)
    return out


def _checked_stride(out: torch.Tensor, rows: int, total: int) -> int:
    """Elements from one row of `out` to the next."""
    if out.dtype is not torch.float32 or out.shape != (rows, total) or out.stride(1) != 1 or not out.is_cpu:
        raise ValueError(
            f"out must be float32 [{rows}, {total}] with dense rows, got {out.dtype} {list(out.shape)}"
        )
    return out.stride(0)
