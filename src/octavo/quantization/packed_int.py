"""4-bit integers of compressed-tensors (format `pack-quantized`): a scale and maybe a zero point for a group of a row.

`weight_packed` [rows, cols / 8] holds eight neighbours of a row in a word, 8 more than they mean; `weight_scale` is [rows, groups],
`weight_zero_point` [rows / 8, groups] has eight rows in a word (compressed-tensors, `compressors/quantized_compressors/pack_quantized.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from octavo import ops
from octavo.ops import reference
from octavo.quantization.floating import FloatMethod
from octavo.quantization.grouped import num_groups, pack_integers
from octavo.quantization.method import StoredTensor


class PackedIntMethod(FloatMethod):
    """`weight_scale * (weight_packed - weight_zero_point)`.

    Args:
        group: Weights of a row that share a scale; 0: all of them.
        symmetric: Whether there are no zero points.
    """

    marker = "weight_packed"

    def __init__(self, group: int, *, symmetric: bool) -> None:
        self._group = group
        self._symmetric = symmetric

    def shapes(self, rows: int, cols: int) -> Mapping[str, tuple[int, ...]]:
        groups = num_groups(cols, self._group)
        shapes = {"weight_packed": (rows, cols // 8), "weight_scale": (rows, groups)}
        if not self._symmetric:
            shapes["weight_zero_point"] = (rows // 8, groups)
        return shapes

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        scales = stored["weight_scale"].data
        if self._symmetric:
            zeros = torch.full(scales.shape, 8, dtype=torch.uint8)
        else:
            zeros = reference.group_quants(stored["weight_zero_point"].data, 4, "gptq").T.byte()
        return pack_integers(
            stored["weight_packed"].data,
            scales,
            zeros,
            order="words",
            bits=4,
            group=self._group,
            rows=rows,
            cols=cols,
        )
