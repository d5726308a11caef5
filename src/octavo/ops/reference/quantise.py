"""Twin of `quantise_weight`: the rounded values, operation for operation as csrc/pack/float_blocks.h has them."""

from __future__ import annotations

import torch

IQ4_NL_CODES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# Which code the largest weight of a block is laid on, or near to.
IQ4_NL_CANDIDATES = (-127.0, 113.0, -118.0, 105.0, -136.0, 121.0)


def quantise_weight(weight: torch.Tensor, fmt: str) -> torch.Tensor:
    """The values that `weight` [rows, cols] is rounded to, float32, for `q8_0` and `iq4_nl`."""
    blocks = weight.float().reshape(-1, 32)
    rounded = _eight_bits(blocks) if fmt == "q8_0" else _codes(blocks)
    return rounded.reshape(weight.shape)


def _eight_bits(x: torch.Tensor) -> torch.Tensor:
    scale = (x.abs().amax(-1, keepdim=True) / 127.0).half().float()
    return scale * (x * _inverse(scale)).clamp(-127.0, 127.0).round()


def _codes(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs().amax(-1, keepdim=True)
    extreme = torch.where(x.amax(-1, keepdim=True) == magnitude, magnitude, -magnitude)
    y = x * _inverse(extreme)
    explained = torch.zeros_like(extreme)
    scale = torch.zeros_like(extreme)
    for candidate in IQ4_NL_CANDIDATES:
        code = _nearest(y * candidate)
        dots, squares = _sum(y * code), _sum(code * code)
        gain = dots * dots / squares
        better = gain > explained
        explained = torch.where(better, gain, explained)
        scale = torch.where(better, extreme * (dots / squares), scale)
    scale = torch.where(magnitude >= 1e-30, scale, 0.0).half().float()
    return scale * _nearest(x * _inverse(scale))


def _inverse(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale != 0, 1.0 / scale, torch.zeros_like(scale))


def _nearest(scaled: torch.Tensor) -> torch.Tensor:
    """The nearest code of the nearest whole number; of two equally near, the lower."""
    codes = torch.tensor(IQ4_NL_CODES, dtype=torch.float32)
    whole = torch.arange(-128, 128)[:, None]
    table = codes[(whole - codes).abs().argmin(-1)]
    return table[scaled.clamp(-127.0, 127.0).round().long() + 128]


def _sum(x: torch.Tensor) -> torch.Tensor:
    """Four interleaved sums, then their sum: [B, 32] -> [B, 1]."""
    parts = torch.zeros(x.shape[0], 4)
    for row in x.reshape(-1, 8, 4).unbind(1):
        parts = parts + row
    return ((parts[:, 0] + parts[:, 1]) + (parts[:, 2] + parts[:, 3]))[:, None]
