"""Physical cores, threads and their places, on machines that the tests lay out as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from octavo.platforms import UNBOUND, core_count, thread_places
from octavo.platforms.topology import Core, parse_cpu_list, physical_cores

CORES, CPUS = 96, 192
Allow = Callable[[Iterable[int]], None]


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Allow:
    """Sets the affinity mask that the code under test sees."""
    return lambda cpus: monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def two_sockets(tmp_path: Path) -> Path:
    """Two sockets of 48 cores with two hardware threads each; processor n + 96 is the second one of core n."""
    for cpu in range(CPUS):
        siblings = f"{cpu % CORES},{cpu % CORES + CORES}\n"
        write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", siblings)
    write(tmp_path / "sys/devices/system/node/node0/cpulist", "0-47,96-143\n")
    write(tmp_path / "sys/devices/system/node/node1/cpulist", "48-95,144-191\n")
    return tmp_path


def limit_to(root: Path, quota: str) -> None:
    write(root / "proc/self/cgroup", "0::/\n")
    write(root / "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    write(root / "sys/fs/cgroup/cpu.max", quota)


def test_hardware_threads_of_a_core_count_once_and_nodes_follow_one_another(
    two_sockets: Path, allow: Allow
) -> None:
    allow(range(CPUS))
    assert core_count(two_sockets) == CORES
    places = thread_places(CORES, two_sockets)
    assert places.cpus == tuple((n, n + CORES) for n in range(CORES))
    assert places.threads_per_node == (48, 48)


def test_interleaved_nodes_are_sorted(tmp_path: Path, allow: Allow) -> None:
    for cpu in range(4):
        write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu}\n")
    write(tmp_path / "sys/devices/system/node/node0/cpulist", "1,3\n")
    write(tmp_path / "sys/devices/system/node/node2/cpulist", "0,2\n")
    allow(range(4))
    places = thread_places(4, tmp_path)
    assert places.cpus == ((1,), (3,), (0,), (2,))
    assert places.threads_per_node == (2, 2)


def test_a_quota_bounds_the_threads_and_leaves_them_unbound(two_sockets: Path, allow: Allow) -> None:
    allow(range(CPUS))
    limit_to(two_sockets, "250000 100000\n")
    assert core_count(two_sockets) == 3
    assert thread_places(3, two_sockets) == UNBOUND
    assert thread_places(CORES, two_sockets) == UNBOUND  # asked for by hand: they would wait for one another


def test_a_mask_of_odd_processors(two_sockets: Path, allow: Allow) -> None:
    allow(range(1, CPUS, 2))
    assert core_count(two_sockets) == 48
    places = thread_places(48, two_sockets)
    assert places.cpus == tuple((n, n + CORES) for n in range(1, CORES, 2))
    assert places.threads_per_node == (24, 24)


def test_a_container_with_two_processors(two_sockets: Path, allow: Allow) -> None:
    allow({10, 58})
    assert core_count(two_sockets) == 2
    places = thread_places(2, two_sockets)
    assert (places.cpus, places.threads_per_node) == (((10,), (58,)), (1, 1))
    allow({10, 106})  # both of one core
    assert core_count(two_sockets) == 1
    assert thread_places(1, two_sockets) == thread_places(2, two_sockets) == UNBOUND


@pytest.mark.parametrize("threads", [1, 2, 16, 95, 97, 192])
def test_other_numbers_of_threads_are_placed_by_the_system(
    two_sockets: Path, allow: Allow, threads: int
) -> None:
    allow(range(CPUS))
    assert thread_places(threads, two_sockets) == UNBOUND


@pytest.mark.parametrize("cores", [1, 2, 16, 96])
def test_without_files_each_processor_counts_and_none_is_bound(
    tmp_path: Path, allow: Allow, cores: int
) -> None:
    allow(range(cores))
    assert core_count(tmp_path) == cores
    assert thread_places(cores, tmp_path) == UNBOUND


def test_one_node_where_the_kernel_knows_of_none(tmp_path: Path) -> None:
    for cpu in (0, 1):
        write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", f"{cpu}\n")
    assert physical_cores({0, 1}, tmp_path) == (Core(0, (0,)), Core(0, (1,)))
    assert physical_cores({0, 1, 2}, tmp_path) is None


def test_lists_of_processors() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("") == parse_cpu_list("a-b") == parse_cpu_list("1,,2") == frozenset()
