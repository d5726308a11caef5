"""What must hold of the instruction-set units as such: no leaking symbols, and AVX-512 right where it cannot run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.ops.weights import random_rows, random_weight, smallest_cols

from octavo import ops
from octavo.lib.errors import ConfigError
from octavo.ops.dispatch import built_module

ROOT = Path(__file__).resolve().parents[2]
SIMDE = Path("/usr/include/simde/x86/avx512.h")
EMULATED = "avx512vnni-emulated"


@pytest.fixture(autouse=True)
def restore_isa() -> Iterator[None]:
    before = ops.isa()
    yield
    ops.set_isa(before)


def test_unknown_isa_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"one of scalar.*got 'mmx'"):
        ops.set_isa("mmx")


def test_scalar_is_always_there_and_the_best_is_the_default() -> None:
    isas = ops.available_isas()
    assert isas[0] == "scalar"
    fresh = "from octavo import ops; print(ops.isa())"
    best = subprocess.run([sys.executable, "-c", fresh], capture_output=True, text=True, check=True, cwd=ROOT)
    assert best.stdout.strip() == next(isa for isa in reversed(isas) if isa != EMULATED)


def _isa_objects() -> list[Path]:
    """The newest object of each unit in any build folder."""
    newest: dict[str, Path] = {}
    for path in sorted(
        (ROOT / "build").glob("**/octavo_*.dir/**/*.o"), key=lambda path: path.stat().st_mtime
    ):
        newest[next(part for part in path.parts if part.startswith("octavo_"))] = path
    return list(newest.values())


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_isa_units_export_one_symbol_and_no_weak_ones() -> None:
    objects = _isa_objects()
    if not objects:
        pytest.skip("no object files of a build in build/")
    for path in objects:
        lines = subprocess.run(
            ["nm", "-C", path], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        kinds = [line.split(maxsplit=2) for line in lines if not line.lstrip().startswith("U ")]
        exported = [fields[-1] for fields in kinds if fields[1].isupper() and fields[1] in "TBDR"]
        weak = [fields[-1] for fields in kinds if fields[1] in "WVwvu"]
        assert weak == [], f"{path}: a linker may keep this copy for machines without the ISA"
        assert len(exported) == 1, (path, exported)
        assert exported[0].startswith("octavo::register_")


@pytest.fixture(scope="module")
def emulated_avx512(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The AVX-512 units compiled against SIMDe and offered to the dispatcher under another name."""
    compiler = shutil.which("g++")
    if compiler is None or not SIMDE.exists():
        pytest.skip("emulating AVX-512 needs g++ and SIMDe (Debian: apt install libsimde-dev)")
    if EMULATED in ops.available_isas():
        return EMULATED
    folder = tmp_path_factory.mktemp("emulated")
    flags = "-std=c++20 -O1 -DNDEBUG -DOCTAVO_EMULATED -fPIC -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti"
    flags += f" -mavx2 -mfma -mf16c -w -I{ROOT}/csrc -I{ROOT}/csrc/include"
    objects = []
    for group in ("LINEAR", "LAYERS"):
        objects.append(str(folder / f"{group}.o"))
        source = str(ROOT / "csrc/isa/avx512vnni.cpp")
        subprocess.run(
            [compiler, *flags.split(), f"-DOCTAVO_{group}", "-c", source, "-o", objects[-1]], check=True
        )
    library = str(folder / "emulated.so")
    shim = str(ROOT / "tests/ops/emulated_avx512.cpp")
    subprocess.run([compiler, *flags.split(), "-shared", shim, *objects, "-o", library], check=True)
    loaded = ctypes.CDLL(library)
    addresses = [
        ctypes.cast(getattr(loaded, f"octavo_fill_{g}"), ctypes.c_void_p).value for g in ("linear", "layers")
    ]
    assert built_module().add_isa(EMULATED, *addresses)
    return EMULATED


@pytest.mark.parametrize("fmt", ops.FORMATS)
def test_emulated_avx512_gives_the_scalar_bits(fmt: str, emulated_avx512: str) -> None:
    cols = {1: 1029, 32: 1120, 256: 1280}[smallest_cols(fmt)]
    weight = random_weight(fmt, 37, cols).packed
    x = random_rows(33, cols)
    ops.set_isa("scalar")
    expected = ops.linear(x, [weight])
    ops.set_isa(emulated_avx512)
    for rows in (1, 2, 3, 7, 8, 9, 16, 33):
        assert torch.equal(ops.linear(x[:rows], [weight]), expected[:rows]), rows


@pytest.mark.parametrize("fmt", ["q4_0", "q5_0", "q8_0", "q4_k", "q6_k"])
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_emulated_avx512_extremes(fmt: str, byte: int, emulated_avx512: str) -> None:
    weight = random_weight(fmt, 16, 512, byte=byte).packed
    x = torch.stack([torch.ones(512), -torch.ones(512), torch.tensor([1.0, -1.0]).repeat(256)]).repeat(4, 1)
    ops.set_isa("scalar")
    expected = ops.linear(x, [weight])
    ops.set_isa(emulated_avx512)
    assert torch.equal(ops.linear(x, [weight]), expected)


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
