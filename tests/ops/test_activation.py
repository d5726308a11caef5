"""Activations: close to float64 over the whole range, the same bits on every ISA and in any batch."""

from __future__ import annotations

import math

import pytest
import torch

from octavo import ops
from octavo.ops import reference

ACTS = ["silu", "gelu_tanh", "gelu"]


def samples() -> torch.Tensor:
    """Every scale of float32: a fine grid where the curves bend, and magnitudes up to 1e30."""
    grid = torch.linspace(-12, 12, 100_001)
    scales = torch.logspace(-30, 30, 2001)
    return torch.cat([grid, scales, -scales, torch.zeros(1)])


@pytest.mark.parametrize("act", ACTS)
def test_error_against_float64(act: str) -> None:
    x = samples()
    error = (ops.activation(x[None], act)[0].double() - reference.activation(x.double(), act)).abs()
    assert (error / x.abs().double().clamp(min=1.0)).max() < 2e-7
    exact = reference.activation(x.double(), act).abs()
    bulk = (exact > 1e-2) | ((x.abs() < 0.5) & (x.abs() > 1e-20))
    assert (error / exact)[bulk].max() < 8e-7


@pytest.mark.parametrize("act", ACTS)
def test_special_values(act: str) -> None:
    out = ops.activation(torch.tensor([[math.inf, -1e38, 0.0, math.nan]]), act)[0]
    assert out[0] == math.inf
    assert out[1] == 0
    assert out[2] == 0
    assert out[3].isnan()


def test_softcap_error_against_float64() -> None:
    x = samples()
    exact = reference.softcap(x.double(), 30.0)
    error = (ops.softcap(x[None], 30.0)[0].double() - exact).abs() / exact.abs().clamp(min=1e-30)
    assert error.max() < 4e-7
    assert torch.equal(ops.softcap(torch.tensor([[math.inf, -math.inf]]), 2.0), torch.tensor([[2.0, -2.0]]))


def test_the_twins_are_torch_and_transformers_formulas() -> None:
    x = samples().clamp(-1e3, 1e3)[:, None].double()
    tanh_form = (
        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    )  # gelu_pytorch_tanh
    torch.testing.assert_close(reference.activation(x, "gelu_tanh"), tanh_form)
    torch.testing.assert_close(reference.activation(x, "gelu"), 0.5 * x * (1 + torch.erf(x / math.sqrt(2))))
    torch.testing.assert_close(reference.activation(x, "silu"), x * torch.sigmoid(x))
    torch.testing.assert_close(reference.softcap(x, 50.0), torch.tanh(x / 50) * 50)  # Gemma2Attention


@pytest.mark.parametrize("act", ACTS)
def test_every_isa_gives_the_same_bits(act: str) -> None:
    x = samples()[: 2 * 51_000].view(2, -1)
    outs = []
    for isa in ops.available_isas():
        ops.set_isa(isa)
        outs.append(torch.cat([ops.activation(x, act), ops.softcap(x, 7.0)]))
    assert all(torch.equal(outs[0], out) for out in outs[1:])


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("width", [1, 16, 31, 1536])
def test_act_mul_by_rows_threads_and_strides(act: str, width: int) -> None:
    wide = torch.randn(40, 2 * width + 5)
    gate_up = wide[:, : 2 * width]
    gate, up = gate_up.chunk(2, dim=1)
    expected = ops.activation(gate, act) * up
    for threads in (1, 2, 4):
        ops.set_num_threads(threads)
        assert torch.equal(ops.act_mul(gate_up, act), expected)
    single = torch.cat([ops.act_mul(row[None], act) for row in gate_up])
    assert torch.equal(single, expected)
    torch.testing.assert_close(reference.act_mul(gate_up, act), expected, rtol=1e-5, atol=1e-6)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="act is 'relu6'"):
        ops.act_mul(torch.zeros(1, 4), "relu6")
    with pytest.raises(ValueError, match="5 columns"):
        ops.act_mul(torch.zeros(1, 5), "silu")
    with pytest.raises(ValueError, match="cap is 0"):
        ops.softcap(torch.zeros(1, 4), 0.0)
    assert ops.act_mul(torch.zeros(0, 4), "silu").shape == (0, 2)
