"""The AVX-VNNI, AVX-512 and AMX kernels on a machine without them: compiled against SIMDe and offered to the dispatcher."""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from octavo.ops.dispatch import built_module

EMULATED = "avx512-emulated"
EMULATED_VNNI = "avx512vnni-emulated"
EMULATED_AVXVNNI = "avxvnni-emulated"
EMULATED_TILES = "amx-emulated"
EMULATIONS = (EMULATED, EMULATED_VNNI, EMULATED_AVXVNNI, EMULATED_TILES)
_ROOT = Path(__file__).resolve().parents[2]
_FLAGS = (
    "-std=c++20 -O1 -DNDEBUG -DOCTAVO_EMULATED -fPIC -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti "
    f"-mavx2 -mfma -mf16c -w -I{_ROOT}/csrc -I{_ROOT}/csrc/include"
).split()


_UNITS = (
    ("avx512", "LINEAR"),
    ("avx512", "LAYERS"),
    ("avx512vnni", "LINEAR"),
    ("avxvnni", "LINEAR"),
    ("amx", "LINEAR"),
)


def simde_flags() -> list[str] | None:
    """How the compiler finds SIMDe: in the package that `make` installs, else in the system; None: nowhere."""
    with suppress(PackageNotFoundError):
        return ["-isystem", str(distribution("cmeel-simde").locate_file("cmeel.prefix/include"))]
    return [] if Path("/usr/include/simde/x86/avx512.h").exists() else None


def offer_emulated(compiler: str, simde: list[str], folder: Path) -> None:
    """Compile the units into `folder` and add them to `ops.available_isas()` as `EMULATIONS`.

    All have the layer kernels of AVX-512: those of AVX2, which AVX-VNNI has, are tested as they are.
    """
    command = [compiler, *_FLAGS, *simde]
    objects = [str(folder / f"{unit}-{group}.o") for unit, group in _UNITS]
    # Half a minute each: side by side.
    compilers = [
        subprocess.Popen(
            [*command, f"-DOCTAVO_{group}", "-c", str(_ROOT / f"csrc/isa/{unit}.cpp"), "-o", target]
        )
        for (unit, group), target in zip(_UNITS, objects, strict=True)
    ]
    statuses = [process.wait() for process in compilers]
    assert not any(statuses), "the emulated units do not compile; the compiler's words are above"
    library = str(folder / "emulated.so")
    shim = str(_ROOT / "tests/ops/emulated_avx512.cpp")
    subprocess.run([*command, "-shared", shim, *objects, "-o", library], check=True)
    loaded = ctypes.CDLL(library)
    layers = _address(loaded, "layers_avx512")
    for name in EMULATIONS:
        linear = _address(loaded, f"linear_{name.removesuffix('-emulated')}")
        assert built_module().add_isa(name, linear, layers)


def _address(loaded: ctypes.CDLL, function: str) -> int | None:
    return ctypes.cast(getattr(loaded, f"octavo_fill_{function}"), ctypes.c_void_p).value
