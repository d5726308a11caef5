"""Rounding float weights to blocks: the bits of the plain twin, the error that the docs promise, and what is refused."""

from __future__ import annotations

import pytest
import torch

from octavo import ops
from octavo.ops import reference
from octavo.ops.packing import FLOAT_DTYPES, QUANTISERS

# Root mean square of the error by that of normally distributed weights. A block of Q4_1 between its extremes, which
# takes a ninth more memory than IQ4_NL, has 0.078, one of Q4_0 0.086.
ERRORS = {"q8_0": 0.0056, "iq4_nl": 0.0748}


def normal(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return (torch.randn(rows, cols, generator=generator) * 0.02).to(dtype)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES.values(), ids=FLOAT_DTYPES)
@pytest.mark.parametrize("fmt", QUANTISERS)
@pytest.mark.parametrize("shape", [(1, 32), (37, 96), (128, 576)], ids=str)
def test_bits_are_those_of_the_twin(fmt: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight = normal(*shape, dtype)
    weight[0, :32] = 0
    weight[-1, -32:] = weight[-1, -32:].float() * 1e-4  # scales among float16's subnormals
    packed = ops.quantise_weight(weight, fmt)
    assert (packed.format, packed.rows, packed.cols) == (fmt, *shape)
    values = packed.dequantize()
    assert torch.equal(values, reference.quantise_weight(weight, fmt))
    assert bool((values[0, :32] == 0).all())


@pytest.mark.parametrize("fmt", QUANTISERS)
def test_error(fmt: str) -> None:
    weight = normal(256, 1024)
    error = ops.quantise_weight(weight, fmt).dequantize() - weight
    assert 0.9 * ERRORS[fmt] < float(error.square().mean().sqrt() / 0.02) < ERRORS[fmt]


@pytest.mark.parametrize("fmt", QUANTISERS)
def test_large_and_small_weights(fmt: str) -> None:
    scales = 2.0 ** torch.arange(-140, 20)
    weight = normal(1, 32) * 50 * scales[:, None]
    values = ops.quantise_weight(weight, fmt).dequantize()
    assert bool(values.isfinite().all())
    # What float16 scales resolve: a step of 2^-24, of which a block has up to 127.
    assert bool(
        ((values - weight).abs() <= 0.13 * weight.abs().amax(-1, keepdim=True) + 127 * 2.0**-25).all()
    )
    assert torch.equal(values, reference.quantise_weight(weight, fmt))


@pytest.mark.parametrize("fmt", QUANTISERS)
def test_threads_do_not_change_the_bits(fmt: str) -> None:
    weight = normal(300, 256, torch.bfloat16)
    found = []
    for threads in (1, 2, 4):
        ops.set_num_threads(threads)
        found.append(ops.quantise_weight(weight, fmt).dequantize())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("fmt", QUANTISERS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e7])
def test_values_without_a_scale_are_refused(fmt: str, bad: float) -> None:
    weight = normal(40, 64)
    weight[33, 40] = bad
    with pytest.raises(ValueError, match="not finite, or beyond"):
        ops.quantise_weight(weight, fmt)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="fmt must be one of q8_0, iq4_nl, got 'q4_k'"):
        ops.quantise_weight(normal(4, 32), "q4_k")
    with pytest.raises(ValueError, match=r"a multiple of 32\], got \[4, 40\]"):
        ops.quantise_weight(normal(4, 40), "q8_0")
    with pytest.raises(ValueError, match=r"tensor, got torch\.int8"):
        ops.quantise_weight(torch.zeros(4, 32, dtype=torch.int8), "q8_0")
