"""bf16 weights on matrix tiles: the one kernel whose bits are not those of the other instruction sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.ops.emulation import EMULATED_TILES
from tests.ops.weights import random_rows, random_weight

from octavo import ops

BLOCK = 32


@pytest.fixture(params=["amx", EMULATED_TILES])
def tiles(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs with tiles, real or emulated."""
    before = ops.isa()
    if request.param == EMULATED_TILES:
        request.getfixturevalue("emulate")(EMULATED_TILES)
    if request.param not in ops.available_isas():
        pytest.skip("no matrix tiles here")
    ops.set_isa(request.param)
    yield request.param
    ops.set_isa(before)


def split_chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The chain that csrc/kernels/linear_float_tiles.h states: x [M, K] float32, w [N, K] bf16 values -> [M, N]."""
    hi = x.bfloat16().float()
    lo = (x - hi).bfloat16().float()
    acc = torch.zeros(x.shape[0], w.shape[0])
    for first in range(0, x.shape[1], BLOCK):
        for part in (hi, lo):
            sums = [torch.zeros_like(acc), torch.zeros_like(acc)]
            for k in range(first, min(first + BLOCK, x.shape[1])):
                sums[k % 2] = sums[k % 2] + part[:, k, None] * w[None, :, k]
            acc = acc + (sums[0] + sums[1])
    return acc


@pytest.mark.parametrize("cols", [1, 31, 32, 97, 2085])
@pytest.mark.parametrize("rows", [1, 5, 16, 17, 50])
@pytest.mark.usefixtures("tiles")
def test_bits_are_those_of_the_stated_chain(rows: int, cols: int) -> None:
    weight = random_weight("bf16", 69, cols)
    bias = torch.randn(69)
    x = random_rows(rows, cols)
    assert torch.equal(ops.linear(x, [weight.packed], bias), split_chain(x, weight.values) + bias)


@pytest.mark.parametrize("cols", [576, 2048, 8192])
def test_error_is_a_few_times_that_of_float32(cols: int, tiles: str) -> None:
    weight = random_weight("bf16", 64, cols)
    x = random_rows(24, cols)
    exact = x.double() @ weight.values.double().T
    errors = []
    for isa in ("scalar", tiles):
        ops.set_isa(isa)
        errors.append((ops.linear(x, [weight.packed]).double() - exact).square().mean().sqrt())
    # What the split leaves out counts for most where sums are short: 5.4, 3.0 and 1.5 times in these three.
    assert errors[1] <= {576: 7, 2048: 4, 8192: 2}[cols] * errors[0], errors


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.usefixtures("tiles")
def test_a_row_without_sense_leaves_the_others_alone(rows: int) -> None:
    weight = random_weight("bf16", 40, 100)
    x = random_rows(rows, 100)
    expected = ops.linear(x, [weight.packed])
    for bad in (float("nan"), float("inf"), -float("inf")):
        spoilt = x.clone()
        spoilt[1, 5] = bad
        got = ops.linear(spoilt, [weight.packed])
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[2:], expected[2:])
        assert torch.equal(got[1].nan_to_num(), (bad * weight.values[:, 5]).nan_to_num())


@pytest.mark.usefixtures("tiles")
def test_small_values_are_kept_and_subnormal_ones_count_as_zero() -> None:
    weight = random_weight("bf16", 16, 64)
    x = torch.zeros(3, 64)
    x[0], x[1] = 1e-40, 1e-30
    got = ops.linear(x, [weight.packed])
    exact = x.double() @ weight.values.double().T
    assert bool(
        ((got - exact).abs() <= 1e-5 * x.double().abs() @ weight.values.double().abs().T + 1e-37).all()
    )
    assert bool((got[2] == 0).all())


@pytest.mark.usefixtures("tiles")
def test_the_largest_values_stay_finite() -> None:
    largest = torch.finfo(torch.float32).max
    weight = ops.pack_weight(torch.full((16, 32), 2.0**-10).bfloat16(), "bf16", 16, 32)
    x = torch.zeros(2, 32)
    x[0, 3], x[1, 7] = largest, -largest
    got = ops.linear(x, [weight])
    torch.testing.assert_close(got[:, 0], torch.tensor([largest, -largest]) * 2**-10, rtol=2**-16, atol=0)
