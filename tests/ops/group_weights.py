"""Matrices of integers with a scale and a zero point a group, laid out as the tools that make checkpoints write them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo import ops
from octavo.ops.packing import GROUP_FORMATS, GroupFormat


@dataclass
class GroupWeight:
    """`scale * (q - zero)`: q [rows, cols] and zero, scale [rows, groups], unsigned integers as int64; e4m3 without zero."""

    q: torch.Tensor
    zero: torch.Tensor
    scale: torch.Tensor
    group: int

    @property
    def values(self) -> torch.Tensor:
        """float32 [rows, cols], one rounding each."""
        column = torch.arange(self.q.shape[1]) // self.group
        q = self.q if self.q.is_floating_point() else self.q - self.zero[:, column]
        return self.scale.float()[:, column] * q.float()


def random_groups(
    rows: int,
    cols: int,
    layout: GroupFormat,
    *,
    seed: int = 0,
    byte: int | None = None,
    dtype: torch.dtype = torch.float16,
) -> GroupWeight:
    """Random weights; with `byte`, the fields of that byte. Zero points of 4 bits are 0 to 16 (AutoGPTQ adds one)."""
    bits, group = layout.bits, layout.group
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(0, 1 << bits, (rows, cols), generator=generator)
    if byte is not None:
        q = torch.tensor([byte >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]).repeat(
            rows, cols * bits // 8
        )
    groups = -(-cols // group)
    zero = torch.full((rows, groups), 128)
    if layout.has_zeros:
        zero = torch.randint(0, 17, (rows, groups), generator=generator)
    scale = ((torch.rand(rows, groups, generator=generator) - 0.5) * 0.04).to(dtype)
    if layout.dtype.is_floating_point:  # 0x7f and 0xff are NaN
        q = torch.where(q % 128 == 127, q - 1, q).byte().view(layout.dtype)
    return GroupWeight(q, zero, scale, group)


def as_int32(words: torch.Tensor) -> torch.Tensor:
    """The low 32 bits of int64 words."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def in_words(q: torch.Tensor, bits: int) -> torch.Tensor:
    """Neighbours along the last dimension side by side in int32 words, the first lowest (AutoGPTQ, compressed-tensors)."""
    per_word = 32 // bits
    words = torch.zeros(*q.shape[:-1], q.shape[-1] // per_word, dtype=torch.int64)
    for i in range(per_word):
        words |= q[..., i::per_word] << (bits * i)
    return as_int32(words)


def in_awq_words(q: torch.Tensor) -> torch.Tensor:
    """[a, b] -> [a, b / 8] as AutoAWQ's WQLinear_GEMM packs its columns."""
    words = torch.zeros(q.shape[0], q.shape[1] // 8, dtype=torch.int64)
    for i, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        words |= q[:, column::8] << (4 * i)
    return as_int32(words)


def in_order(q: torch.Tensor, bits: int, order: str) -> torch.Tensor:
    """Unsigned weights [rows, cols] in one of the orders of `ops.pack_groups`."""
    if order == "bytes" and q.is_floating_point():
        return q
    if order == "bytes":
        return (q - 128).to(torch.int8)
    if order == "words":
        return in_words(q, bits)
    return in_words(q.T.contiguous().T, bits).T.contiguous() if order == "gptq" else in_awq_words(q.T)


def packed(weight: GroupWeight, fmt: str, order: str) -> ops.PackedWeight:
    """The weight in the kernels' layout."""
    return ops.pack_groups(
        in_order(weight.q, GROUP_FORMATS[fmt].bits, order),
        weight.scale.float(),
        weight.zero.byte() if GROUP_FORMATS[fmt].has_zeros else None,
        fmt=fmt,
        order=order,
        rows=weight.q.shape[0],
        cols=weight.q.shape[1],
    )
