"""Normalisation in plain torch."""

from __future__ import annotations

import torch


def _wide(x: torch.Tensor) -> torch.Tensor:
    """`x` in float32, or in float64 when it already is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension (Zhang and Sennrich, 2019)."""
    wide = _wide(x)
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale * weight.to(wide.dtype)).to(x.dtype)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last dimension; the variance is the biased one."""
    wide = _wide(x)
    centred = wide - wide.mean(dim=-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    out = centred * scale * weight.to(wide.dtype)
    if bias is not None:
        out = out + bias.to(wide.dtype)
    return out.to(x.dtype)
