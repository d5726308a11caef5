"""Twin of `pack_groups`: the values that a checkpoint's packed integers stand for."""

from __future__ import annotations

import torch

# The output that each place of an AutoAWQ word belongs to.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def fields(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The unsigned fields of int32 words, the lowest first: [a, b] -> [a, b, 32 / bits] int64."""
    return (words[..., None].long() >> torch.arange(0, 32, bits)) & ((1 << bits) - 1)


def group_quants(quants: torch.Tensor, bits: int, order: str) -> torch.Tensor:
    """Unsigned weights [rows, cols] int64 of one of the orders of `ops.pack_groups`."""
    if order == "bytes":
        return quants.long() + 128
    if order == "words":
        return fields(quants, bits).flatten(1)
    if order == "gptq":
        return fields(quants.T, bits).flatten(1)
    return fields(quants, bits)[..., torch.tensor(AWQ_ORDER).argsort()].flatten(1).T


def group_values(
    quants: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    *,
    bits: int,
    group: int,
    order: str,
) -> torch.Tensor:
    """The weights as float32 [rows, cols]; scales and zeros [rows, groups], see `ops.pack_groups`."""
    if quants.dtype is torch.float8_e4m3fn:
        return quants.float() * _columns(scales, group, quants.shape[1])
    q = group_quants(quants, bits, order)
    if zeros is None:
        return _columns(scales, group, q.shape[1]) * (q - 128).float()
    scales = ((scales.view(torch.int32) + 0x80) & ~0xFF).view(torch.float32)
    return _columns(scales, group, q.shape[1]) * (q - _columns(zeros, group, q.shape[1]).long()).float()


def _columns(values: torch.Tensor, group: int, cols: int) -> torch.Tensor:
    """[rows, groups] -> [rows, cols]."""
    return values.repeat_interleave(group, 1)[:, :cols]
