"""The AVX-VNNI, AVX-512 and AMX kernels on a machine without them: compiled against SIMDe and offered to the dispatcher."""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from octavo.ops.dispatch import built_module

EMULATED_VNNI = "avx512vnni-emulated"
EMULATED_TILES = "amx-emulated"
EMULATED_PLAIN = "avx512-emulated"
EMULATED_AVXVNNI = "avxvnni-emulated"
EMULATIONS = (
    EMULATED_VNNI,
    EMULATED_TILES,
    # They differ from the ones above by a word or two of the vocabulary, and compile for a minute.
    pytest.param(EMULATED_PLAIN, marks=pytest.mark.slow),
    pytest.param(EMULATED_AVXVNNI, marks=pytest.mark.slow),
)
"""Instruction sets to run a test on."""
_ROOT = Path(__file__).resolve().parents[2]
_FLAGS = (
    "-std=c++20 -O1 -DNDEBUG -DOCTAVO_EMULATED -fPIC -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti "
    f"-mavx2 -mfma -mf16c -w -I{_ROOT}/csrc -I{_ROOT}/csrc/include"
).split()


# Sets of kernels that are compiled together, each a unit of csrc/isa and its half.
_UNITS = {
    "USUAL": (("avx512vnni", "LINEAR"), ("amx", "LINEAR"), ("avx512", "LAYERS")),
    "RARE": (("avx512", "LINEAR"), ("avxvnni", "LINEAR"), ("avx512", "LAYERS")),
}


def simde_flags() -> list[str] | None:
    """How the compiler finds SIMDe: in the package that `make` installs, else in the system; None: nowhere."""
    with suppress(PackageNotFoundError):
        return ["-isystem", str(distribution("cmeel-simde").locate_file("cmeel.prefix/include"))]
    return [] if Path("/usr/include/simde/x86/avx512.h").exists() else None


def offer_emulated(isa: str, compiler: str, simde: list[str], folder: Path) -> None:
    """Compile the units into `folder` and add `isa`, and those compiled with it, to `ops.available_isas()`.

    All have the layer kernels of AVX-512: those of AVX2, which AVX-VNNI has, are tested as they are.
    """
    which = "USUAL" if isa in (EMULATED_VNNI, EMULATED_TILES) else "RARE"
    library = _compile(which, [compiler, *_FLAGS, *simde], folder)
    layers = _address(library, "layers_avx512")
    for unit, group in _UNITS[which]:
        if group == "LINEAR":
            assert built_module().add_isa(f"{unit}-emulated", _address(library, f"linear_{unit}"), layers)


def _compile(which: str, command: list[str], folder: Path) -> ctypes.CDLL:
    # Half a minute each: side by side.
    objects = {folder / f"{unit}-{group}.o": (unit, group) for unit, group in _UNITS[which]}
    compilers = [
        subprocess.Popen([*command, f"-DOCTAVO_{group}", "-c", f"{_ROOT}/csrc/isa/{unit}.cpp", "-o", target])
        for target, (unit, group) in objects.items()
        if not target.exists()
    ]
    statuses = [process.wait() for process in compilers]
    assert not any(statuses), "the emulated units do not compile; the compiler's words are above"
    library = folder / f"{which.lower()}.so"
    shim = f"{_ROOT}/tests/ops/emulated_avx512.cpp"
    subprocess.run(
        [*command, f"-DOCTAVO_{which}", "-shared", shim, *map(str, objects), "-o", str(library)], check=True
    )
    return ctypes.CDLL(str(library))


def _address(loaded: ctypes.CDLL, function: str) -> int | None:
    return ctypes.cast(getattr(loaded, f"octavo_fill_{function}"), ctypes.c_void_p).value
