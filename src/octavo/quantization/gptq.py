"""GPTQ checkpoints (AutoGPTQ, GPTQModel): 4 or 8 bits, a float16 scale and a zero point for a group of a row.

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (2022). `qweight`
[cols / n, rows] holds n neighbours of a row in a word, `qzeros` [groups, rows / n] those of a group; `scales` are
[groups, rows]; `g_idx` says which group a column belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from octavo import ops
from octavo.ops import reference
from octavo.quantization.floating import FloatMethod
from octavo.quantization.grouped import num_groups, pack_integers
from octavo.quantization.method import StoredTensor


class GPTQMethod(FloatMethod):
    """`scales * (qweight - (qzeros + zero_offset))`.

    Args:
        bits: 4, or 8 with zero points in the middle.
        group: Weights of a row that share a scale; 0: all of them.
        zero_offset: 1 where zero points are stored less one (the format `gptq`), 0 in `gptq_v2`.
    """

    marker = "qweight"

    def __init__(self, bits: int, group: int, zero_offset: int) -> None:
        self._bits, self._group, self._zero_offset = bits, group, zero_offset

    def shapes(self, rows: int, cols: int) -> Mapping[str, tuple[int, ...]]:
        groups, per_word = num_groups(cols, self._group), 32 // self._bits
        return {
            "qweight": (cols // per_word, rows),
            "qzeros": (groups, rows // per_word),
            "scales": (groups, rows),
            "g_idx": (cols,),
        }

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        self._check_order(stored["g_idx"].data, cols)
        return pack_integers(
            stored["qweight"].data,
            stored["scales"].data.T,
            self._zeros(stored["qzeros"].data),
            order="gptq",
            bits=self._bits,
            group=self._group,
            rows=rows,
            cols=cols,
        )

    def _check_order(self, g_idx: torch.Tensor, cols: int) -> None:
        if not torch.equal(g_idx.long(), torch.arange(cols) // (self._group or cols)):
            raise ValueError(
                "has columns sorted by activation over groups (desc_act), which is not supported"
            )

    def _zeros(self, qzeros: torch.Tensor) -> torch.Tensor | None:
        """uint8 [rows, groups], or None for 8 bits."""
        zeros = reference.group_quants(qzeros, self._bits, "words").T + self._zero_offset
        if self._bits == 4:
            return zeros.byte()
        if bool((zeros != 128).any()):
            raise ValueError("has zero points beside 8-bit weights (sym is false), which is not supported")
        return None
