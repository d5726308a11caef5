"""Twin of the matrix product: rows quantised as the kernels do, then one plain product in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from octavo.ops.packing import PackedWeight

BLOCK32_FORMATS = frozenset({"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"})
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


def linear(
    x: torch.Tensor,
    weights: Sequence[PackedWeight],
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """See `octavo.ops.linear`."""
    products = [rounded_rows(x, weight.format) @ weight.dequantize().double().T for weight in weights]
    result = torch.cat(products, dim=1)
    if bias is not None:
        result = result + bias.double()
    if out is None:
        return result.float()
    return out.copy_(result)
