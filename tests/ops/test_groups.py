"""Packing of integers with a scale a group: every order that checkpoints have, and what is refused."""

from __future__ import annotations

import pytest
import torch
from tests.ops.group_weights import in_order, packed, random_groups

from octavo import ops
from octavo.lib.errors import NotSupportedError
from octavo.ops import reference
from octavo.ops.packing import GROUP_FORMATS

CASES = [
    (fmt, order)
    for fmt, orders in {
        "int4_g32": ("words", "gptq", "awq"),
        "int4_g128": ("words", "gptq", "awq"),
        "int8_g128": ("bytes", "words", "gptq"),
        "e4m3_g128": ("bytes",),
    }.items()
    for order in orders
]


@pytest.mark.parametrize("shape", [(8, 32), (16, 128), (40, 96), (64, 416)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("fmt", "order"), CASES)
def test_nothing_is_lost(fmt: str, order: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    layout = GROUP_FORMATS[fmt]
    bits, group = layout.bits, layout.group
    weight = random_groups(*shape, layout, dtype=dtype)
    values = packed(weight, fmt, order).dequantize()
    assert torch.equal(values, weight.values)
    zeros = weight.zero.byte() if layout.has_zeros else None
    twin = reference.group_values(
        in_order(weight.q, bits, order), weight.scale.float(), zeros, bits=bits, group=group, order=order
    )
    assert torch.equal(values, twin)


def test_scales_beside_zero_points_keep_16_bits() -> None:
    weight = random_groups(16, 256, GROUP_FORMATS["int4_g128"])
    weight.scale = torch.rand(16, 2) + 0.5
    values = packed(weight, "int4_g128", "words").dequantize()
    assert not torch.equal(values, weight.values)
    assert bool(((values - weight.values).abs() <= weight.values.abs() * 2**-16).all())
    weight = random_groups(16, 256, GROUP_FORMATS["int8_g128"])
    weight.scale = torch.rand(16, 2) + 0.5
    assert torch.equal(packed(weight, "int8_g128", "bytes").dequantize(), weight.values)


@pytest.mark.parametrize(
    ("fmt", "order", "bits"),
    [
        ("int4_g128", "awq", 4.25),
        ("int4_g32", "awq", 5.0),
        ("int8_g128", "bytes", 8.25),
        ("e4m3_g128", "bytes", 8.25),
    ],
)
def test_bits_a_weight(fmt: str, order: str, bits: float) -> None:
    weight = packed(random_groups(64, 512, GROUP_FORMATS[fmt]), fmt, order)
    assert weight.nbytes * 8 / (64 * 512) == bits


def test_what_does_not_fit_is_refused() -> None:
    scales, zeros = torch.ones(16, 1), torch.zeros(16, 1, dtype=torch.uint8)
    words = torch.zeros(16, 8, dtype=torch.int32)

    def pack(quants=words, scales=scales, zeros=zeros, fmt="int4_g128", order="words", rows=16, cols=64):  # type: ignore[no-untyped-def]
        return ops.pack_groups(quants, scales, zeros, fmt=fmt, order=order, rows=rows, cols=cols)

    assert pack().cols == 64
    with pytest.raises(NotSupportedError, match=r"'q4_0' has no groups; those are int4_g32"):
        pack(fmt="q4_0")
    with pytest.raises(NotSupportedError, match=r"a multiple of 32 columns, got 16 x 40"):
        pack(cols=40)
    with pytest.raises(NotSupportedError, match=r"no int4_g128 weights \[16, 64\] lie in the order 'bytes'"):
        pack(order="bytes")
    with pytest.raises(
        ValueError, match=r"quants must be torch\.int32 \[8, 16\], got torch\.int32 \[16, 8\]"
    ):
        pack(order="gptq")
    with pytest.raises(ValueError, match=r"scales must be torch\.float32 \[16, 2\]"):
        pack(fmt="int4_g32")
    with pytest.raises(ValueError, match="scales hold values that are not finite"):
        pack(scales=torch.full((16, 1), float("inf")))
    with pytest.raises(ValueError, match="zeros belong to formats of 4 bits"):
        pack(zeros=None)
    with pytest.raises(ValueError, match=r"zeros must be torch\.uint8 \[16, 1\], got torch\.int8"):
        pack(zeros=zeros.to(torch.int8))
    with pytest.raises(ValueError, match="int4_g128 is packed from groups"):
        ops.dispatch.built_module().pack("int4_g128", 16, 64, 0, 0)


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_8_bit_floats_give_the_bits_of_the_float32_weights(rows: int) -> None:
    """Nothing is lost but by the rounding of code * scale to float32, which `values` has too."""
    weight = random_groups(40, 416, GROUP_FORMATS["e4m3_g128"])
    x = torch.randn(rows, 416)
    expected = ops.linear(x, [ops.pack_weight(weight.values, "f32", 40, 416)])
    assert torch.equal(ops.linear(x, [packed(weight, "e4m3_g128", "bytes")]), expected)


def test_every_8_bit_float() -> None:
    codes = torch.arange(256).byte().view(torch.float8_e4m3fn).view(8, 32)
    weight = ops.pack_groups(codes, torch.ones(8, 1), None, fmt="e4m3_g128", order="bytes", rows=8, cols=32)
    torch.testing.assert_close(weight.dequantize(), codes.float(), rtol=0, atol=0, equal_nan=True)
