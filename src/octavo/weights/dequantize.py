"""From GGUF's quantised blocks to float32: the plain meaning of every format, vectorised over blocks.

The layouts are those of ggml's `ggml-common.h` and the arithmetic that of `dequantize_row_*` in `ggml-quants.c`, operation
for operation, so that results agree to the bit. Shapes below: B blocks; a K-quant block has 256 elements, others 32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from octavo.weights.source import RawDType, RawTensor

# Rows are converted in pieces of about this many elements, so that temporaries stay small beside the result.
CHUNK_ELEMENTS = 1 << 18

IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# Twice the values of OCP's E2M1, so that they are whole; the scale is halved instead.
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def to_float32(raw: RawTensor) -> Tensor:
    """Any raw tensor as float32 of its logical shape."""
    if not raw.dtype.is_quantized:
        return raw.data.float()
    return dequantize(raw.data, raw.dtype)


def dequantize(data: Tensor, dtype: RawDType) -> Tensor:
    """Expand rows of quantised blocks.

    Args:
        data: uint8 [..., bytes of a row].
        dtype: A quantised format.

    Returns:
        float32 [..., elements of a row].
    """
    columns = data.shape[-1] // dtype.block_bytes * dtype.block_size
    blocks = data.reshape(-1, dtype.block_bytes)
    out = torch.empty(blocks.shape[0], dtype.block_size)
    step = max(1, CHUNK_ELEMENTS // dtype.block_size)
    for start in range(0, blocks.shape[0], step):
        out[start : start + step] = _EXPANDERS[dtype](blocks[start : start + step])
    return out.view(*data.shape[:-1], columns)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` of each block -> float32 [B, 1]."""
    return _copy(blocks[:, at : at + 2]).view(torch.float16).float()


def _copy(part: Tensor) -> Tensor:
    """A contiguous copy with an address of its own, so that it may be seen as wider integers."""
    return part.clone(memory_format=torch.contiguous_format)


def _fields(packed: Tensor, bits: int, groups: int = 1) -> Tensor:
    """Bit fields of bytes, lowest first, group by group: [B, n] -> [B, groups * 8 / bits, n / groups].

    n / groups is a multiple of 4.
    """
    # Four bytes at a time: what a shift brings over from the neighbour byte is masked away.
    words = _copy(packed).view(torch.int32).view(packed.shape[0], groups, -1)
    mask = ((1 << bits) - 1) * 0x01010101
    fields = torch.stack([(words >> shift) & mask for shift in range(0, 8, bits)], dim=2)
    return fields.view(torch.uint8).flatten(1, 2)


def _nibbles(packed: Tensor) -> Tensor:
    """[B, 16] -> [B, 32]: all low nibbles, then all high ones."""
    return _fields(packed, 4).flatten(1)


def _five_bits(packed: Tensor, high: Tensor) -> Tensor:
    """Nibbles [B, 16] joined by one more bit each from [B, 4] -> [B, 32] in 0..31."""
    # Element 8 i + j has its fifth bit in bit j of byte i.
    return _nibbles(packed) | (_fields(high, 1).transpose(1, 2).flatten(1) << 4)


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_five_bits(blocks[:, 6:], blocks[:, 2:6]).float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _five_bits(blocks[:, 8:], blocks[:, 4:8]).float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _copy(blocks[:, 2:]).view(torch.int8).float()


def _q2_k(blocks: Tensor) -> Tensor:
    """Scales 16 (low nibble scale, high nibble min, one a 16 elements) | quants 64 | d | dmin."""
    scales, quants = blocks[:, :16], blocks[:, 16:80]
    d, dmin = _half(blocks, 80), _half(blocks, 82)
    q = _fields(quants, 2, groups=2).view(-1, 16, 16).float()
    scale = (d * (scales & 15).float()).unsqueeze(-1)
    low = (dmin * (scales >> 4).float()).unsqueeze(-1)
    return (scale * q - low).flatten(1)


def _q3_k(blocks: Tensor) -> Tensor:
    """High bits 32 | low bits 64 | 6-bit scales 12 | d; a high bit that is not set means minus 4."""
    high, low, packed = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    # 16 scales: four low bits in bytes 0..7, two high bits in bytes 8..11.
    scales = _fields(packed[:, :8], 4).flatten(1) | (_fields(packed[:, 8:], 2).flatten(1) << 4)
    scale = _half(blocks, 108) * (scales.float() - 32)
    q = _fields(low, 2, groups=2).flatten(1) | (_fields(high, 1).flatten(1) << 2)
    return (scale.unsqueeze(-1) * (q.float() - 4).view(-1, 16, 16)).flatten(1)


def _scales_and_mins(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The 6-bit scales and mins of Q4_K and Q5_K: [B, 12] -> two of [B, 8].

    Bytes 0..3 hold scales 0..3 and 4..7 mins 0..3 in their low six bits; their top two bits are those of scales and
    mins 4..7, whose low four bits are the nibbles of bytes 8..11.
    """
    scale, low, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat([scale & 63, (rest & 15) | ((scale >> 6) << 4)], dim=1)
    mins = torch.cat([low & 63, (rest >> 4) | ((low >> 6) << 4)], dim=1)
    return scales.float(), mins.float()


def _k_affine(blocks: Tensor, q: Tensor) -> Tensor:
    """d * scale * q - dmin * min over eight groups of 32; q: [B, 8, 32]."""
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    scale = (_half(blocks, 0) * scales).unsqueeze(-1)
    low = (_half(blocks, 2) * mins).unsqueeze(-1)
    return (scale * q.float() - low).flatten(1)


def _q4_k(blocks: Tensor) -> Tensor:
    """d | dmin | scales and mins 12 | quants 128."""
    return _k_affine(blocks, _fields(blocks[:, 16:], 4, groups=4))


def _q5_k(blocks: Tensor) -> Tensor:
    """d | dmin | scales and mins 12 | high bits 32 | quants 128."""
    q = _fields(blocks[:, 48:], 4, groups=4)
    return _k_affine(blocks, q | (_fields(blocks[:, 16:48], 1) << 4))


def _q6_k(blocks: Tensor) -> Tensor:
    """Low nibbles 128 | high two bits 64 | int8 scales 16 | d."""
    low = _fields(blocks[:, :128], 4, groups=2).flatten(1)
    high = _fields(blocks[:, 128:192], 2, groups=2).flatten(1)
    scale = _half(blocks, 208) * _copy(blocks[:, 192:208]).view(torch.int8).float()
    q = (low | (high << 4)).float() - 32
    return (scale.unsqueeze(-1) * q.view(-1, 16, 16)).flatten(1)


def _iq4_nl(blocks: Tensor) -> Tensor:
    values = torch.tensor(IQ4_NL_VALUES, dtype=torch.float32)
    return _half(blocks, 0) * values[_nibbles(blocks[:, 2:]).long()]


def _mxfp4(blocks: Tensor) -> Tensor:
    """A power-of-two scale (E8M0) | quants 16."""
    exponent = blocks[:, :1].int()
    # Half of 2 ** (e - 127), made from its bits; the two smallest are subnormal.
    bits = torch.where(exponent < 2, 0x200000 << exponent, (exponent - 1) << 23)
    values = torch.tensor(MXFP4_VALUES, dtype=torch.float32)
    return bits.view(torch.float32) * values[_nibbles(blocks[:, 1:]).long()]


_EXPANDERS: dict[RawDType, Callable[[Tensor], Tensor]] = {
    RawDType.Q4_0: _q4_0,
    RawDType.Q4_1: _q4_1,
    RawDType.Q5_0: _q5_0,
    RawDType.Q5_1: _q5_1,
    RawDType.Q8_0: _q8_0,
    RawDType.Q2_K: _q2_k,
    RawDType.Q3_K: _q3_k,
    RawDType.Q4_K: _q4_k,
    RawDType.Q5_K: _q5_k,
    RawDType.Q6_K: _q6_k,
    RawDType.IQ4_NL: _iq4_nl,
    RawDType.MXFP4: _mxfp4,
}
