"""`compare_isas`: every kernel and vector operation of every instruction set against the scalar ones, to the bit.

Built for this machine, and for AArch64 with Debian's cross compiler, where it runs under qemu-user as processors with and
without the optional instructions. The scalar results must be the same numbers on both.
"""

from __future__ import annotations

import fcntl
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Processors that qemu emulates, and what of NEON they have.
ARM_PROCESSORS = {
    "cortex-a72": ["neon"],
    "cortex-a76": ["neon", "neondot"],
    "max": ["neon", "neondot", "i8mm"],
}

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Comparison:
    """What the program said."""

    isas: list[str]
    scalar_results: str


def _tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _built(preset: str) -> Path:
    """Builds the program of a preset in CMakePresets.json."""
    folder = ROOT / "build" / preset
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make = f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"
        subprocess.run([_tool("cmake"), "--preset", preset, make], cwd=ROOT, check=True)
        subprocess.run([_tool("cmake"), "--build", str(folder)], check=True)
    return folder / "compare_isas"


def _compare(*command: str) -> Comparison:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"scalar results: (\w+)\ncompared with scalar in \d{3} cases:(.*)\n", done.stdout)
    assert found is not None, done.stdout
    return Comparison(found[2].split(), found[1])


@pytest.fixture(scope="module")
def here() -> Comparison:
    """The comparison on this machine."""
    return _compare(str(_built("native-tests")))


def test_this_machine(here: Comparison) -> None:
    from octavo import ops

    own_sums = "amx"
    assert here.isas == [
        isa for isa in ops.available_isas() if isa not in ("scalar", own_sums) and "emulated" not in isa
    ]


@pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine compares its own kernels")
@pytest.mark.parametrize("processor", ARM_PROCESSORS)
def test_aarch64_under_emulation(processor: str, here: Comparison) -> None:
    for program, package in (
        ("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
        ("qemu-aarch64", "qemu-user"),
    ):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (Debian: apt install {package})")
    found = _compare("qemu-aarch64", "-cpu", processor, str(_built("aarch64")))
    assert found.isas == ARM_PROCESSORS[processor]
    assert found.scalar_results == here.scalar_results
