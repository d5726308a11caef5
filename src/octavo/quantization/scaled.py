"""8-bit weights, one an element, with scales beside them: int8 (W8A8 of SmoothQuant and llm-compressor) and float8 e4m3.

Activations are not rounded as these checkpoints foresee, but as for all weights here: for integers to 8 bits in blocks of 32
(one scale a token in W8A8, which is coarser), for floats not at all. Scales that were measured for
activations are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from octavo import ops
from octavo.ops.packing import GROUP_FORMATS
from octavo.quantization.floating import FloatMethod
from octavo.quantization.method import StoredTensor


@dataclass(frozen=True, slots=True)
class ScaleBlock:
    """Rows and columns that share a scale; 0: all of them."""

    rows: int
    cols: int

    def shape(self, rows: int, cols: int) -> tuple[int, ...]:
        """That of the tensor of scales: one number, or a matrix."""
        if not self.rows and not self.cols:
            return (1,)
        return -(-rows // (self.rows or rows)), -(-cols // (self.cols or cols))


class ScaledMethod(FloatMethod):
    """`weight` [rows, cols] times its scales.

    Args:
        fmt: What it becomes: `int8_g128` or `e4m3_g128`.
        block: What a scale is for.
        scale: Last part of the name of the scales' tensor.
    """

    def __init__(self, fmt: str, block: ScaleBlock, scale: str = "weight_scale") -> None:
        self._format = fmt
        self._block = block
        self.marker = scale

    def shapes(self, rows: int, cols: int) -> Mapping[str, tuple[int, ...]]:
        return {"weight": (rows, cols), self.marker: self._block.shape(rows, cols)}

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        weight = stored["weight"].data
        if weight.dtype is torch.float8_e4m3fn and bool((weight.view(torch.uint8) & 0x7F == 0x7F).any()):
            raise ValueError("holds values that are not finite")
        scales = self._scales(stored[self.marker].data.float(), rows, cols)
        return ops.pack_groups(weight, scales, None, fmt=self._format, order="bytes", rows=rows, cols=cols)

    def _scales(self, stored: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
        """[rows, groups of the format]."""
        group = GROUP_FORMATS[self._format].group
        row = torch.arange(rows) // (self._block.rows or rows)
        column = torch.arange(-(-cols // group)) * group // (self._block.cols or cols)
        return stored.reshape(int(row[-1]) + 1, -1)[row[:, None], column]
