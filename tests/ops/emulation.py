"""The AVX-512 and AMX kernels on a machine without them: compiled against SIMDe and offered to the dispatcher."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from octavo.ops.dispatch import built_module

EMULATED = "avx512vnni-emulated"
EMULATED_TILES = "amx-emulated"
SIMDE = Path("/usr/include/simde/x86/avx512.h")
_ROOT = Path(__file__).resolve().parents[2]
_FLAGS = (
    "-std=c++20 -O1 -DNDEBUG -DOCTAVO_EMULATED -fPIC -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti "
    f"-mavx2 -mfma -mf16c -w -I{_ROOT}/csrc -I{_ROOT}/csrc/include"
).split()


def offer_emulated_avx512(compiler: str, folder: Path) -> None:
    """Compile the units into `folder` and add them to `ops.available_isas()` as `EMULATED` and `EMULATED_TILES`."""
    objects = []
    for unit, group in (("avx512vnni", "LINEAR"), ("avx512vnni", "LAYERS"), ("amx", "LINEAR")):
        objects.append(str(folder / f"{unit}-{group}.o"))
        source = str(_ROOT / f"csrc/isa/{unit}.cpp")
        subprocess.run([compiler, *_FLAGS, f"-DOCTAVO_{group}", "-c", source, "-o", objects[-1]], check=True)
    library = str(folder / "emulated.so")
    shim = str(_ROOT / "tests/ops/emulated_avx512.cpp")
    subprocess.run([compiler, *_FLAGS, "-shared", shim, *objects, "-o", library], check=True)
    loaded = ctypes.CDLL(library)
    linear, tiles, layers = (
        ctypes.cast(getattr(loaded, f"octavo_fill_{name}"), ctypes.c_void_p).value
        for name in ("linear", "tiles", "layers")
    )
    assert built_module().add_isa(EMULATED, linear, layers)
    assert built_module().add_isa(EMULATED_TILES, tiles, layers)
