"""Twin of the matrix product: rows (on matrix tiles also weights) rounded as the kernels do, then a plain float64 product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from octavo.ops.dispatch import native_isa

if TYPE_CHECKING:
    from octavo.ops.packing import PackedWeight

BLOCK32_FORMATS = frozenset(
    {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "int4_g32", "int4_g128", "int8_g128"}
)
# From here on rounding to float16 would give infinity; the kernels keep the float32 then.
F16_LIMIT = 65520.0
BLOCK256_FORMATS = frozenset({"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"})


def quantise_block32(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q8_0 of llama.cpp: [M, K] float32 -> int8 values [M, K/32, 32] and scales [M, K/32], f16 values where they fit."""
    blocks = x.reshape(x.shape[0], -1, 32)
    largest = blocks.abs().amax(-1)
    scale = largest / 127.0
    scale = torch.where(scale < F16_LIMIT, scale.half().float(), scale)
    inverse = torch.where(scale > 0, 127.0 / largest, torch.zeros_like(largest))
    return torch.round(blocks * inverse[..., None]).to(torch.int8), scale


def quantise_block256(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q8_K of llama.cpp: int8 values [M, K/256, 256] and float32 scales [M, K/256]; the extreme becomes -127."""
    blocks = x.reshape(x.shape[0], -1, 256)
    magnitude = blocks.abs()
    extreme = blocks.gather(-1, magnitude.argmax(-1, keepdim=True))[..., 0]
    used = magnitude.amax(-1) >= 1e-30
    inverse = torch.where(used, -127.0 / extreme, torch.zeros_like(extreme))
    q = torch.round(blocks * inverse[..., None]).clamp(max=127).to(torch.int8)
    return q, torch.where(used, 1.0 / inverse, torch.zeros_like(inverse))


def rounded_rows(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """`x` as a weight of format `fmt` sees it: quantised and back, float64 [M, K]."""
    if fmt in BLOCK32_FORMATS:
        q, scale = quantise_block32(x.float())
    elif fmt in BLOCK256_FORMATS:
        q, scale = quantise_block256(x.float())
    else:
        return x.double()
    return (q.double() * scale.double()[..., None]).reshape(x.shape)


def on_tiles(x: torch.Tensor) -> bool:
    """Whether kernels would multiply these rows with quantised weights on matrix tiles, which take bfloat16."""
    return native_isa().startswith("amx") and x.is_cpu and x.dtype is torch.float32


def tile_weights(values: torch.Tensor) -> torch.Tensor:
    """Dequantised weights as csrc/kernels/linear_quantised_tiles.h rounds them, up to the sub-scales of K formats.

    To float16 (enlarged, so that none is subnormal), then to eight bits of mantissa, ties away from zero.
    """
    largest = float(values.abs().max())
    enlarge = 2.0 ** (14 - math.frexp(largest)[1]) if largest > 0 else 1.0
    bits = (values * enlarge).half().float().view(torch.int32)
    return ((bits + 0x8000) & ~0xFFFF).view(torch.float32) / enlarge


def _product(x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    values = weight.dequantize()
    if on_tiles(x) and weight.format in BLOCK32_FORMATS | BLOCK256_FORMATS:
        return x.bfloat16().double() @ tile_weights(values).double().T
    return rounded_rows(x, weight.format) @ values.double().T


def linear(
    x: torch.Tensor,
    weights: Sequence[PackedWeight],
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """See `octavo.ops.linear`."""
    products = [_product(x, weight) for weight in weights]
    result = torch.cat(products, dim=1)
    if bias is not None:
        result = result + bias.double()
    if out is None:
        return result.float()
    return out.copy_(result)
