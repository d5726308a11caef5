"""Weights with one scale, and maybe a zero point, for a group of a row, as checkpoints of other tools hold them."""

from __future__ import annotations

import torch

from octavo.lib.errors import NotSupportedError
from octavo.ops import dispatch
from octavo.ops.operands import require
from octavo.ops.packing import GROUP_FORMATS, PackedWeight

ORDERS = ("bytes", "words", "gptq", "awq")


def pack_groups(
    quants: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    *,
    fmt: str,
    order: str,
    rows: int,
    cols: int,
) -> PackedWeight:
    """Pack `scale * (q - zero)` of integers, or `scale * q` of 8-bit floats, as they lie in a safetensors file.

    Without anything in between, on all threads.

    Args:
        quants: By `order`, with n weights of a row in a word, the first lowest: `bytes` int8 or float8_e4m3fn [rows, cols];
            `words` int32 [rows, cols / n]; `gptq` int32 [cols / n, rows]; `awq` int32 [cols, rows / 8], eight rows in a
            word in AutoAWQ's order.
        scales: float32 [rows, groups], groups = ceil(cols / the format's group). Beside zero points 16 bits of a
            mantissa are kept, so that float16 and bfloat16 values are exact.
        zeros: uint8 [rows, groups] for formats of 4 bits. None for 8 bits: that of words is 128.
        fmt: One of `GROUP_FORMATS`.
        order: One of `ORDERS`.
        rows: Outputs (N).
        cols: Inputs (K), a multiple of 32.

    Raises:
        NotSupportedError: the format is unknown, or cols no multiple of 32.
        ValueError: a tensor has another dtype or shape, or scales are not finite.
    """
    if fmt not in GROUP_FORMATS:
        raise NotSupportedError(
            f"weight format {fmt!r} has no groups; those are {', '.join(GROUP_FORMATS)}", param="fmt"
        )
    if rows < 1 or cols < 1 or cols % 32:
        raise NotSupportedError(f"a {fmt} matrix needs a multiple of 32 columns, got {rows} x {cols}")
    layout = GROUP_FORMATS[fmt]
    dtype, shape = _stored(fmt, order, rows, cols)
    _require_tensor("quants", quants, dtype, shape)
    _require_tensor("scales", scales, torch.float32, (rows, -(-cols // layout.group)))
    require(bool(scales.isfinite().all()), "scales hold values that are not finite")
    require((zeros is not None) == layout.has_zeros, f"zeros belong to formats of 4 bits, fmt is {fmt}")
    if zeros is not None:
        _require_tensor("zeros", zeros, torch.uint8, tuple(scales.shape))
        zeros = zeros.contiguous()
    quants, scales = quants.contiguous(), scales.contiguous()
    zeros_at = 0 if zeros is None else zeros.data_ptr()
    module = dispatch.built_module()
    return PackedWeight(
        module.pack_groups(fmt, order, rows, cols, quants.data_ptr(), scales.data_ptr(), zeros_at)
    )


def _stored(fmt: str, order: str, rows: int, cols: int) -> tuple[torch.dtype, tuple[int, int]]:
    """What `quants` must be."""
    bits, dtype = GROUP_FORMATS[fmt].bits, GROUP_FORMATS[fmt].dtype
    if order == "bytes" and bits == 8:
        return dtype, (rows, cols)
    if order == "words" and not dtype.is_floating_point:
        return torch.int32, (rows, cols * bits // 32)
    if order == "gptq" and not dtype.is_floating_point:
        return torch.int32, (cols * bits // 32, rows)
    if order == "awq" and bits == 4 and rows % 8 == 0:
        return torch.int32, (cols, rows // 8)
    raise NotSupportedError(f"no {fmt} weights [{rows}, {cols}] lie in the order {order!r}")


def _require_tensor(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    require(tensor.is_cpu, f"{name} must be on the CPU, is on {tensor.device}")
    require(
        tensor.dtype is dtype and tuple(tensor.shape) == shape,
        f"{name} must be {dtype} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}",
    )
