"""Float checkpoints rounded to 8 or 4 bits while they load (`--quantization`).

Blocks of 32 weights with a float16 scale, so that the result is what a GGUF file of the same type holds: `int8` is Q8_0
(8.5 bits a weight), `int4` is IQ4_NL (4.5 bits), whose sixteen uneven levels lose less than even ones do: on normally
distributed weights its relative error is 0.074, that of Q4_0 0.086 and of Q4_1, which needs 5 bits, 0.078.

What is small or weighs heavily keeps more: the embedding and the head are always 8-bit, tied or not; a router's scores
stay float, and so do matrices whose rows are no whole number of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo import ops
from octavo.quantization.floating import FloatMethod
from octavo.quantization.method import LinearMethod, StoredTensor

BLOCK = 32
_FORMATS = {"int8": "q8_0", "int4": "iq4_nl"}
_ENDS = frozenset({"model.embed_tokens", "lm_head"})
# A few rows that decide everything: nothing to be saved there.
_CLASSIFIER = "score"
_ROUTERS = (".gate", ".router", ".shared_expert_gate")


class RoundingMethod(FloatMethod):
    """A float `weight`, rounded to blocks.

    Args:
        fmt: One of `ops.packing.QUANTISERS`.
    """

    def __init__(self, fmt: str) -> None:
        self._format = fmt

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        if cols % BLOCK:
            return super().pack(stored, rows, cols)
        return ops.quantise_weight(stored["weight"].data, self._format)


class RoundingResolver:
    """The method of each matrix for one value of `--quantization`.

    Args:
        scheme: `int8` or `int4`.
    """

    def __init__(self, scheme: str) -> None:
        self._matrices = RoundingMethod(_FORMATS[scheme])
        self._ends = RoundingMethod(_FORMATS["int8"])
        self._floats = FloatMethod()

    def resolve(self, path: str) -> LinearMethod:
        if path in _ENDS:
            return self._ends
        kept = path == _CLASSIFIER or path.endswith(_ROUTERS)
        return self._floats if kept else self._matrices
