"""The AVX-512 kernels on a machine without AVX-512: compiled against SIMDe and offered to the dispatcher."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from octavo.ops.dispatch import built_module

EMULATED = "avx512vnni-emulated"
SIMDE = Path("/usr/include/simde/x86/avx512.h")
_ROOT = Path(__file__).resolve().parents[2]
_FLAGS = (
    "-std=c++20 -O1 -DNDEBUG -DOCTAVO_EMULATED -fPIC -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti "
    f"-mavx2 -mfma -mf16c -w -I{_ROOT}/csrc -I{_ROOT}/csrc/include"
).split()


def offer_emulated_avx512(compiler: str, folder: Path) -> None:
    """Compile the AVX-512 units into `folder` and add them to `ops.available_isas()` as `EMULATED`."""
    objects = []
    for group in ("LINEAR", "LAYERS"):
        objects.append(str(folder / f"{group}.o"))
        source = str(_ROOT / "csrc/isa/avx512vnni.cpp")
        subprocess.run([compiler, *_FLAGS, f"-DOCTAVO_{group}", "-c", source, "-o", objects[-1]], check=True)
    library = str(folder / "emulated.so")
    shim = str(_ROOT / "tests/ops/emulated_avx512.cpp")
    subprocess.run([compiler, *_FLAGS, "-shared", shim, *objects, "-o", library], check=True)
    loaded = ctypes.CDLL(library)
    addresses = [
        ctypes.cast(getattr(loaded, f"octavo_fill_{g}"), ctypes.c_void_p).value for g in ("linear", "layers")
    ]
    assert built_module().add_isa(EMULATED, *addresses)
