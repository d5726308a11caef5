"""What must hold of the instruction-set units as such: the choice, and kernels right where they cannot run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.ops.emulation import EMULATED_TILES, EMULATIONS
from tests.ops.test_linear import PORTABLE
from tests.ops.weights import random_rows, random_weight, smallest_cols

from octavo import ops
from octavo.lib.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_unknown_isa_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"one of scalar.*got 'mmx'"):
        ops.set_isa("mmx")


def test_scalar_is_always_there_and_the_best_is_the_default() -> None:
    isas = ops.available_isas()
    assert isas[0] == "scalar"
    fresh = "from octavo import ops; print(ops.isa())"
    best = subprocess.run([sys.executable, "-c", fresh], capture_output=True, text=True, check=True, cwd=ROOT)
    assert best.stdout.strip() == [isa for isa in isas if "emulated" not in isa][-1]


@pytest.mark.parametrize("isa", EMULATIONS)
@pytest.mark.parametrize("fmt", ops.FORMATS)
def test_emulated_kernels_give_the_scalar_bits(fmt: str, isa: str, emulate: Callable[[str], str]) -> None:
    emulate(isa)
    cols = {1: 1029, 32: 2144, 256: 1280}[smallest_cols(fmt)]
    weight = random_weight(fmt, 37, cols).packed
    x = random_rows(33, cols)
    ops.set_isa(isa if isa == EMULATED_TILES and fmt not in PORTABLE else "scalar")
    expected = ops.linear(x, [weight])
    ops.set_isa(isa)
    for rows in (1, 2, 3, 7, 8, 9, 16, 23, 33):
        assert torch.equal(ops.linear(x[:rows], [weight]), expected[:rows]), rows


@pytest.mark.parametrize("isa", [isa for isa in EMULATIONS if isa != EMULATED_TILES])
@pytest.mark.parametrize("fmt", ["q4_0", "q5_0", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"])
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_emulated_extremes(fmt: str, byte: int, isa: str, emulate: Callable[[str], str]) -> None:
    emulate(isa)
    weight = random_weight(fmt, 16, 512, byte=byte).packed
    x = torch.stack([torch.ones(512), -torch.ones(512), torch.tensor([1.0, -1.0]).repeat(256)]).repeat(8, 1)
    ops.set_isa("scalar")
    expected = ops.linear(x, [weight])
    ops.set_isa(isa)
    assert torch.equal(ops.linear(x, [weight]), expected)


@pytest.mark.parametrize("fmt", ops.FORMATS)
def test_emulated_tiles_give_the_bits_of_the_hardware(fmt: str, emulate: Callable[[str], str]) -> None:
    if "amx" not in ops.available_isas():
        pytest.skip("no matrix tiles here")
    emulate(EMULATED_TILES)
    cols = {1: 1029, 32: 2144, 256: 1280}[smallest_cols(fmt)]
    weights = [
        random_weight(fmt, 37, cols).packed,
        *(random_weight(fmt, 16, cols, byte=b).packed for b in (0, 127, 255)),
    ]
    x = torch.cat([random_rows(33, cols), torch.full((1, cols), 1e-25), torch.full((1, cols), 1e20)])
    for rows in (1, 16, 35):
        results = []
        for isa in ("amx", EMULATED_TILES):
            ops.set_isa(isa)
            results.append(ops.linear(x[-rows:], weights))
        assert torch.equal(*(result.nan_to_num(7.0) for result in results)), rows


def test_emulated_avx512_norms_and_activations(emulated_avx512: str) -> None:
    x, weight = random_rows(9, 83), torch.randn(83)
    gate_up = random_rows(5, 122) * 3
    results = []
    for isa in ("scalar", emulated_avx512):
        ops.set_isa(isa)
        results.append(
            [
                ops.rms_norm(x, weight, 1e-6),
                ops.layer_norm(x, weight, None, 1e-5),
                *(ops.act_mul(gate_up, act) for act in ("silu", "gelu_tanh", "gelu")),
                ops.softcap(x, 30.0),
            ]
        )
    for scalar, emulated in zip(*results, strict=True):
        assert torch.equal(scalar, emulated)
