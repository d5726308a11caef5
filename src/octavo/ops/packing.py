"""Weights in the layout that the kernels read: repacked once at load, in their stored precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from octavo.lib.errors import NotSupportedError
from octavo.ops import dispatch
from octavo.ops.operands import require

# Stored size of a block: name -> (weights, bytes) of one GGUF block, row-major.
QUANTISED_BLOCKS = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "iq4_nl": (32, 18),
    "mxfp4": (32, 17),
}
FLOAT_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class GroupFormat(NamedTuple):
    """Weights with a float32 scale a group; see `pack_groups`.

    Attributes:
        bits: Of a weight.
        group: Weights of a row that share a scale.
        has_zeros: Whether they share a zero point as well.
        dtype: Of a tensor that holds one weight an element.
    """

    bits: int
    group: int
    has_zeros: bool
    dtype: torch.dtype


GROUP_FORMATS = {
    "int4_g32": GroupFormat(4, 32, True, torch.uint8),
    "int4_g128": GroupFormat(4, 128, True, torch.uint8),
    "int8_g128": GroupFormat(8, 128, False, torch.int8),
    "e4m3_g128": GroupFormat(8, 128, False, torch.float8_e4m3fn),
}
FORMATS = (*FLOAT_DTYPES, *QUANTISED_BLOCKS, *GROUP_FORMATS)
# Formats that floats can be rounded to.
QUANTISERS = ("q8_0", "iq4_nl")


class PackedWeight:
    """A matrix [rows, cols] in panels of 16 output rows (csrc/include/octavo/packed_format.h); made by `pack_weight`.

    `native` is the extension's object, which owns the memory.
    """

    __slots__ = ("cols", "format", "native", "nbytes", "rows")

    def __init__(self, native: Any) -> None:
        self.native = native
        self.format: str = native.format
        self.rows: int = native.rows
        self.cols: int = native.cols
        self.nbytes: int = native.nbytes

    def dequantize(self) -> torch.Tensor:
        """The weights as float32 [rows, cols], exactly the values that `gguf.quants.dequantize` gives for GGUF's."""
        out = torch.empty(self.rows, self.cols)
        dispatch.built_module().dequantise(self.native, out.data_ptr())
        return out

    def __repr__(self) -> str:
        return f"PackedWeight({self.format}, {self.rows} x {self.cols}, {self.nbytes} bytes)"


def quantise_weight(weight: torch.Tensor, fmt: str) -> PackedWeight:
    """Round a float matrix to blocks of 32 weights and pack it, without anything in between, on all threads.

    `q8_0`: the scale is the largest magnitude / 127. `iq4_nl`: sixteen levels that lie densest around zero; of six
    scales, each improved by least squares, the one with the least squared error.

    Args:
        weight: [rows, cols], one of `FLOAT_DTYPES`; cols is a multiple of 32.
        fmt: One of `QUANTISERS`.

    Raises:
        ValueError: another dtype or shape, or values that are not finite.
    """
    require(fmt in QUANTISERS, f"fmt must be one of {', '.join(QUANTISERS)}, got {fmt!r}")
    source = next((name for name, dtype in FLOAT_DTYPES.items() if dtype is weight.dtype), None)
    require(source is not None, f"weight must be a float32, bfloat16 or float16 tensor, got {weight.dtype}")
    require(weight.is_cpu, f"weight must be on the CPU, is on {weight.device}")
    require(
        weight.dim() == 2 and weight.numel() > 0 and weight.shape[1] % 32 == 0,
        f"weight must be [rows, a multiple of 32], got {list(weight.shape)}",
    )
    dense = weight.contiguous()
    return PackedWeight(dispatch.built_module().quantise(fmt, source, *weight.shape, dense.data_ptr()))


def pack_weight(raw: torch.Tensor, fmt: str, rows: int, cols: int) -> PackedWeight:
    """Repack a matrix; afterwards `raw` is no longer needed.

    Args:
        raw: For a quantised format the row-major GGUF blocks as uint8, any shape; else the float tensor [rows, cols].
        fmt: One of `FLOAT_DTYPES` or `QUANTISED_BLOCKS`.
        rows: Outputs (N).
        cols: Inputs (K), a multiple of the format's block.

    Raises:
        NotSupportedError: the format is unknown, or the extension is not built.
        ValueError: `raw` has another dtype or size than the format says.
    """
    known = (*FLOAT_DTYPES, *QUANTISED_BLOCKS)
    if fmt not in known:
        raise NotSupportedError(
            f"weight format {fmt!r} has no kernel; known are {', '.join(known)}", param="fmt"
        )
    dtype = FLOAT_DTYPES.get(fmt, torch.uint8)
    require(raw.dtype is dtype, f"raw must be {dtype} for format {fmt}, got {raw.dtype}")
    require(raw.is_cpu, f"raw must be on the CPU, is on {raw.device}")
    if fmt in FLOAT_DTYPES:
        require(tuple(raw.shape) == (rows, cols), f"raw must be [{rows}, {cols}], got {list(raw.shape)}")
    dense = raw.contiguous()
    return PackedWeight(dispatch.built_module().pack(fmt, rows, cols, dense.data_ptr(), dense.nbytes))
