"""What the object files of the instruction-set units may hold: one symbol, and no instruction of a larger set."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF
_BEYOND_AVX2 = r"%zmm|%tmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])"
_ARM_MATRIX_PRODUCTS = r"\s(us?mmla|smmla|usdot|sudot|bf(dot|mmla|mlal[bt]|cvtn?2?))\s|\b[zp]\d+\."
_ARM_DOT_PRODUCTS = rf"\s[su]dot\s|{_ARM_MATRIX_PRODUCTS}"
_ARM_BEYOND_I8MM = r"\sbf(dot|mmla|mlal[bt]|cvtn?2?)\s|\b[zp]\d+\."
# Of each unit, what its disassembly must not show.
FOREIGN = {
    ("x86_64", "scalar"): r"\sv[a-z0-9]+\s.*%[xyz]mm|%tmm|%k[0-7]",
    ("x86_64", "avx2"): rf"{_BEYOND_AVX2}|\svpdp",
    ("x86_64", "avxvnni"): _BEYOND_AVX2,
    ("x86_64", "avx512"): r"%tmm|\svpdp|\svdpbf16ps|\svpermb\s",
    ("x86_64", "avx512vnni"): r"%tmm|\svdpbf16ps|\svpermb\s",
    ("x86_64", "amx"): r"\svdpbf16ps",
    ("aarch64", "scalar"): _ARM_DOT_PRODUCTS,
    ("aarch64", "neon"): _ARM_DOT_PRODUCTS,
    ("aarch64", "neondot"): _ARM_MATRIX_PRODUCTS,
    ("aarch64", "i8mm"): _ARM_BEYOND_I8MM,
}
# What the matrix kernels of a unit are there for.
OWN = {
    ("x86_64", "avxvnni"): r"\svpdpbusd\s",
    ("x86_64", "avx512vnni"): r"\svpdpbusd\s",
    ("x86_64", "amx"): r"\stdpbf16ps\s",
    ("aarch64", "neondot"): r"\ssdot\s",
    ("aarch64", "i8mm"): r"\ssmmla\s",
}


@dataclass(frozen=True)
class IsaObject:
    path: Path
    machine: str
    unit: str


def _machine(path: Path) -> str:
    return MACHINES.get(int.from_bytes(path.read_bytes()[18:20], "little"), "another machine")


def _isa_objects() -> list[IsaObject]:
    """The newest object of each unit, group and machine in any build folder."""
    newest: dict[tuple[str, str], IsaObject] = {}
    for path in sorted(
        (ROOT / "build").glob("**/octavo_*.dir/**/*.o"), key=lambda path: path.stat().st_mtime
    ):
        target = next(part for part in path.parts if part.startswith("octavo_"))
        found = IsaObject(path, _machine(path), target.split("_")[1])
        newest[found.machine, target] = found
    return list(newest.values())


def _tool(name: str, machine: str) -> str:
    """The binutils program that reads objects of `machine`; skips the test where there is none."""
    program = name if machine == platform.machine() else f"{machine}-linux-gnu-{name}"
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    return program


def _output(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(params=MACHINES.values())
def objects(request: pytest.FixtureRequest) -> list[IsaObject]:
    """The units that were built for one machine."""
    found = [item for item in _isa_objects() if item.machine == request.param]
    if not found:
        pytest.skip(f"no object files of a build for {request.param} in build/")
    return found


def test_units_export_one_symbol_and_no_weak_ones(objects: list[IsaObject]) -> None:
    for item in objects:
        lines = _output(_tool("nm", item.machine), "-C", str(item.path))
        kinds = [line.split(maxsplit=2) for line in lines if not line.lstrip().startswith("U ")]
        exported = [fields[-1] for fields in kinds if fields[1].isupper() and fields[1] in "TBDR"]
        weak = [fields[-1] for fields in kinds if fields[1] in "WVwvu"]
        assert weak == [], f"{item.path}: a linker may keep this copy for machines without the ISA"
        assert len(exported) == 1, (item.path, exported)
        assert exported[0].startswith("octavo::register_")


def test_units_hold_no_instruction_of_a_larger_set(objects: list[IsaObject]) -> None:
    for item in objects:
        foreign = re.compile(FOREIGN[item.machine, item.unit])
        lines = _output(_tool("objdump", item.machine), "-d", "--no-show-raw-insn", str(item.path))
        assert len(lines) > 1000, item.path
        assert [line for line in lines if foreign.search(line)] == [], item.path


def test_matrix_kernels_use_the_instructions_of_their_set(objects: list[IsaObject]) -> None:
    for item in objects:
        own = OWN.get((item.machine, item.unit))
        if own is None or not any("LINEAR" in part for part in item.path.parts):
            continue
        lines = _output(_tool("objdump", item.machine), "-d", "--no-show-raw-insn", str(item.path))
        assert any(re.search(own, line) for line in lines), item.path
