"""AWQ checkpoints (AutoAWQ's `gemm` version): 4 bits, a float16 scale and a zero point for a group of a row.

Lin et al., "AWQ: Activation-aware Weight Quantization" (2023). `qweight` [cols, rows / 8] and `qzeros` [groups, rows / 8] hold
eight rows in a word, interleaved (AutoAWQ, `awq/modules/linear/gemm.py`); `scales` are [groups, rows].
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo import ops
from octavo.ops import reference
from octavo.quantization.floating import FloatMethod
from octavo.quantization.grouped import num_groups, pack_integers
from octavo.quantization.method import StoredTensor


class AWQMethod(FloatMethod):
    """`scales * (qweight - qzeros)`.

    Args:
        group: Weights of a row that share a scale; 0: all of them.
    """

    marker = "qweight"

    def __init__(self, group: int) -> None:
        self._group = group

    def shapes(self, rows: int, cols: int) -> Mapping[str, tuple[int, ...]]:
        groups = num_groups(cols, self._group)
        return {"qweight": (cols, rows // 8), "qzeros": (groups, rows // 8), "scales": (groups, rows)}

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        zeros = reference.group_quants(stored["qzeros"].data, 4, "awq").byte()
        return pack_integers(
            stored["qweight"].data,
            stored["scales"].data.T,
            zeros,
            order="awq",
            bits=4,
            group=self._group,
            rows=rows,
            cols=cols,
        )
