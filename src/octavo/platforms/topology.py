"""How the machine is built: which processors are one physical core, and which memory is near them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
# The first name is the newer one of the same list.
_SIBLINGS = ("core_cpus_list", "thread_siblings_list")


@dataclass(frozen=True, order=True)
class Core:
    """One physical core, as far as this process may use it."""

    node: int
    """Number of its NUMA node."""
    cpus: tuple[int, ...]
    """Its allowed processors (hardware threads), ascending."""


def physical_cores(allowed: Set[int], root: Path = Path("/")) -> tuple[Core, ...] | None:
    """The cores that `allowed` processors belong to, by NUMA node and number; None where the system does not say.

    Args:
        allowed: Processors that this process may run on.
        root: Where the file system starts; tests point it at a folder that plays `/`.
    """
    nodes = _node_of_cpus(root)
    cpus_of: dict[frozenset[int], list[int]] = {}
    for cpu in sorted(allowed):
        siblings = _siblings(root, cpu)
        if cpu not in siblings:
            return None
        cpus_of.setdefault(siblings, []).append(cpu)
    return tuple(sorted(Core(nodes.get(cpus[0], 0), tuple(cpus)) for cpus in cpus_of.values()))


def parse_cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as Linux writes sets of processors; what is no such list is empty."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return frozenset()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _siblings(root: Path, cpu: int) -> frozenset[int]:
    folder = root / CPUS / f"cpu{cpu}" / "topology"
    return next((cpus for name in _SIBLINGS if (cpus := _cpu_list(folder / name))), frozenset())


def _node_of_cpus(root: Path) -> dict[int, int]:
    return {
        cpu: int(folder.name.removeprefix("node"))
        for folder in (root / NODES).glob("node[0-9]*")
        for cpu in _cpu_list(folder / "cpulist")
    }


def _cpu_list(path: Path) -> frozenset[int]:
    try:
        return parse_cpu_list(path.read_text())
    except OSError:
        return frozenset()
