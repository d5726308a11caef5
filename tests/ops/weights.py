"""Random matrices in every weight format, with the float values that they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import torch
from tests.ops.group_weights import packed, random_groups

from octavo import ops
from octavo.ops.packing import FLOAT_DTYPES, GROUP_FORMATS, QUANTISED_BLOCKS

torch.set_num_threads(1)

QUANTISED = (*QUANTISED_BLOCKS, *GROUP_FORMATS)
# Byte offsets of the float16 fields in a block.
F16_FIELDS = {
    "q4_0": [0],
    "q4_1": [0, 2],
    "q5_0": [0],
    "q5_1": [0, 2],
    "q8_0": [0],
    "q4_k": [0, 2],
    "q5_k": [0, 2],
    "q6_k": [208],
    "q2_k": [80, 82],
    "q3_k": [108],
    "iq4_nl": [0],
    "mxfp4": [],
}


@dataclass
class Weight:
    """A packed matrix and its exact values."""

    packed: ops.PackedWeight
    values: torch.Tensor


def smallest_cols(fmt: str) -> int:
    """What a row of a format is a multiple of (1 for floats)."""
    if fmt in GROUP_FORMATS:
        return 32
    return QUANTISED_BLOCKS[fmt][0] if fmt in QUANTISED_BLOCKS else 1


def random_blocks(fmt: str, rows: int, cols: int, seed: int = 0, byte: int | None = None) -> np.ndarray:
    """GGUF blocks [rows, bytes]: random bytes (or all equal to `byte`) with sensible float16 fields."""
    rng = np.random.default_rng(seed)
    weights, size = QUANTISED_BLOCKS[fmt]
    blocks = rng.integers(0, 256, (rows, cols // weights, size), dtype=np.uint8)
    if byte is not None:
        blocks[:] = byte
    for offset in F16_FIELDS[fmt]:
        scales = rng.uniform(-0.02, 0.02, (rows, cols // weights, 1)).astype(np.float16)
        blocks[:, :, offset : offset + 2] = scales.view(np.uint8)
    if fmt == "mxfp4":  # the exponent: 2^-12 to 2^-5
        blocks[:, :, 0] = rng.integers(115, 123, blocks.shape[:2])
    return blocks.reshape(rows, -1)


def random_weight(fmt: str, rows: int, cols: int, seed: int = 0, byte: int | None = None) -> Weight:
    """A packed weight whose `values` come from the `gguf` package, not from our code."""
    if fmt in FLOAT_DTYPES:
        generator = torch.Generator().manual_seed(seed)
        raw = torch.randn(rows, cols, generator=generator).to(FLOAT_DTYPES[fmt])
        return Weight(ops.pack_weight(raw, fmt, rows, cols), raw.float())
    if fmt in GROUP_FORMATS:
        groups = random_groups(rows, cols, GROUP_FORMATS[fmt], seed=seed, byte=byte)
        return Weight(
            packed(groups, fmt, "bytes" if GROUP_FORMATS[fmt].bits == 8 else "words"), groups.values
        )
    blocks = random_blocks(fmt, rows, cols, seed, byte)
    kind = gguf.GGMLQuantizationType[fmt.upper()]
    values = torch.from_numpy(gguf.quants.dequantize(blocks, kind).reshape(rows, cols).copy())
    raw = torch.from_numpy(blocks)
    return Weight(ops.pack_weight(raw, fmt, rows, cols), values)


def random_rows(rows: int, cols: int, seed: int = 1) -> torch.Tensor:
    """Activations with a few outliers, as models have them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cols, generator=generator)
    outliers = torch.rand(rows, cols, generator=generator) < 0.01
    return torch.where(outliers, x * 20, x)
