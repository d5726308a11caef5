"""Normalisation: against float64, torch and transformers' formula, and the same bits on every ISA and in any batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from octavo import ops
from octavo.ops import reference

EPS = 1e-5
SIZES = [1, 15, 16, 17, 64, 100, 576, 2048]


def rms(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return ops.rms_norm(x, weight, EPS)


def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return ops.layer_norm(x, weight, bias, EPS)


Norm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def operands(rows: int, cols: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * 10_000 + cols)
    return (
        torch.randn(rows, cols, generator=generator) * 3 + 0.5,
        torch.randn(cols, generator=generator),
        torch.randn(cols, generator=generator),
    )


@pytest.mark.parametrize("cols", SIZES)
@pytest.mark.parametrize("norm", [rms, layer])
def test_agrees_with_the_twin_in_float64(norm: Norm, cols: int) -> None:
    x, weight, bias = operands(5, cols)
    expected = norm(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(norm(x, weight, bias).double(), expected, rtol=2e-6, atol=2e-6)


def test_the_twins_are_the_known_formulas() -> None:
    x, weight, bias = operands(4, 64)
    expected = torch.nn.functional.layer_norm(x, (64,), weight, bias, EPS)
    torch.testing.assert_close(reference.layer_norm(x, weight, bias, EPS), expected)
    without_bias = torch.nn.functional.layer_norm(x, (64,), weight, None, EPS)
    torch.testing.assert_close(ops.layer_norm(x, weight, None, EPS), without_bias)
    llama = weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))  # LlamaRMSNorm.forward
    torch.testing.assert_close(reference.rms_norm(x, weight, EPS), llama)


@pytest.mark.parametrize("cols", SIZES)
@pytest.mark.parametrize("norm", [rms, layer])
def test_every_isa_gives_the_same_bits(norm: Norm, cols: int) -> None:
    x, weight, bias = operands(3, cols)
    outs = []
    for isa in ops.available_isas():
        ops.set_isa(isa)
        outs.append(norm(x, weight, bias))
    assert all(torch.equal(outs[0], out) for out in outs[1:])


@pytest.mark.parametrize("norm", [rms, layer])
def test_a_row_does_not_depend_on_the_others_or_the_threads(norm: Norm) -> None:
    x, weight, bias = operands(300, 576)
    single = torch.cat([norm(row[None], weight, bias) for row in x])
    for threads in (1, 2, 4):
        ops.set_num_threads(threads)
        assert torch.equal(norm(x, weight, bias), single)


@pytest.mark.parametrize("norm", [rms, layer])
def test_heads_of_a_strided_qkv_row(norm: Norm) -> None:
    fused = torch.randn(6, 9 * 64 + 2 * 3 * 64)
    heads = fused[:, 9 * 64 : 12 * 64].unflatten(1, (3, 64))
    _, weight, bias = operands(1, 64)
    out = norm(heads, weight, bias)
    assert out.shape == (6, 3, 64)
    assert torch.equal(out, norm(heads.contiguous().view(18, 64), weight, bias).view(6, 3, 64))


def test_no_rows_and_a_wrong_weight() -> None:
    assert ops.rms_norm(torch.empty(0, 64), torch.ones(64), EPS).shape == (0, 64)
    with pytest.raises(ValueError, match=r"weight must be .* shape \(64,\)"):
        ops.rms_norm(torch.ones(2, 64), torch.ones(63), EPS)
    with pytest.raises(ValueError, match="bias"):
        ops.layer_norm(torch.ones(2, 64), torch.ones(64), torch.ones(64, dtype=torch.float64), EPS)
