"""What the methods for packed integers share: from a checkpoint's groups to those of the kernels."""

from __future__ import annotations

import torch

from octavo import ops
from octavo.ops.packing import GROUP_FORMATS


def num_groups(cols: int, group: int) -> int:
    """Groups in a row of `cols` weights; `group` 0 is the whole row."""
    return -(-cols // group) if group else 1


def group_format(bits: int, cols: int, group: int) -> str:
    """The format with the largest groups that these are whole multiples of.

    Raises:
        ValueError: there is none.
    """
    for size in (128, 32):
        fmt = f"int{bits}_g{size}"
        if fmt in GROUP_FORMATS and (num_groups(cols, group) == 1 or group % size == 0):
            return fmt
    raise ValueError(f"has groups of {group} weights of {bits} bits, for which there is no kernel")


def pack_integers(
    quants: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    *,
    order: str,
    bits: int,
    group: int,
    rows: int,
    cols: int,
) -> ops.PackedWeight:
    """See `ops.pack_groups`; here scales and zeros [rows, num_groups(cols, group)] may be of any size of group."""
    fmt = group_format(bits, cols, group)
    size = GROUP_FORMATS[fmt].group
    of = torch.arange(num_groups(cols, size)) * size // (group or cols)
    scales = scales.float()[:, of]
    if zeros is not None:
        zeros = zeros[:, of]
    return ops.pack_groups(quants, scales, zeros, fmt=fmt, order=order, rows=rows, cols=cols)
