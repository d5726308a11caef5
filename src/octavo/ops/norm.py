"""Normalisation over the last dimension."""

from __future__ import annotations

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for, new_output
from octavo.ops.operands import address, require


def _rows(x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, int, int, int]]:
    """`x` with a dense last dimension, and its rows as (outer, inner, outer stride, inner stride)."""
    strides = x.stride()
    if len(strides) not in (2, 3) or strides[-1] != 1:
        x = x.reshape(-1, x.shape[-1]).contiguous()
        strides = x.stride()
    if len(strides) == 2:
        return x, (x.shape[0], 1, strides[0], 0)
    return x, (x.shape[0], x.shape[1], strides[0], strides[1])


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension (Zhang and Sennrich, 2019).

    Args:
        x: [M, H] or [M, heads, H]; rows and heads may be strided (a slice of a fused qkv row).
        weight: [H].
        eps: Added to the mean square.

    Returns:
        A dense tensor of x's shape.
    """
    native = native_for(x)
    if native is None:
        return reference.rms_norm(x, weight, eps)
    cols = x.shape[-1]
    weights = address("weight", weight, torch.float32, (cols,))
    rows, layout = _rows(x)
    out = new_output(*x.shape)
    native.norm(False, rows.data_ptr(), weights, 0, out.data_ptr(), *layout, cols, eps)
    return out


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last dimension; shapes as `rms_norm`."""
    native = native_for(x)
    if native is None:
        return reference.layer_norm(x, weight, bias, eps)
    cols = x.shape[-1]
    require(cols > 0, "x must have at least one column")
    weights = address("weight", weight, torch.float32, (cols,))
    biases = 0 if bias is None else address("bias", bias, torch.float32, (cols,))
    rows, layout = _rows(x)
    out = new_output(*x.shape)
    native.norm(True, rows.data_ptr(), weights, biases, out.data_ptr(), *layout, cols, eps)
    return out
