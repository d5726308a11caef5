"""Weights in floating point: kept as stored, multiplied in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from octavo import ops
from octavo.ops.packing import FLOAT_DTYPES, QUANTISED_BLOCKS
from octavo.quantization.method import StoredTensor


class FloatMethod:
    """`weight` in float32, bfloat16 or float16."""

    def shapes(self, rows: int, cols: int) -> Mapping[str, tuple[int, ...]]:
        return {"weight": (rows, cols)}

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        weight = stored["weight"]
        if weight.format not in (*FLOAT_DTYPES, *QUANTISED_BLOCKS):
            raise ValueError(f"is stored as {weight.format}, and its scales are missing")
        return ops.pack_weight(weight.data, weight.format, rows, cols)

    def apply(
        self, x: torch.Tensor, weights: Sequence[ops.PackedWeight], bias: torch.Tensor | None
    ) -> torch.Tensor:
        return ops.linear(x, weights, bias)
