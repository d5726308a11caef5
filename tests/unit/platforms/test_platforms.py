"""Memory and processor limits, read from file systems that the tests lay out."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from octavo.lib.errors import ConfigError
from octavo.platforms import core_count, memory_available, process_rss, select_platform
from octavo.platforms.cgroup import Cgroups

GIB = 1 << 30
MOUNT_V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
MOUNT_V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_takes_the_tightest_ancestor_and_forgives_page_cache(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/app\n",
            "proc/self/mountinfo": MOUNT_V2,
            "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:   {64 * GIB // 1024} kB\n",
            "sys/fs/cgroup/pod/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{6 * GIB}\n",
            "sys/fs/cgroup/pod/memory.stat": f"anon 1\ninactive_file {GIB}\nactive_file 5\n",
            "sys/fs/cgroup/pod/app/memory.max": "max\n",
            "sys/fs/cgroup/pod/app/memory.current": f"{6 * GIB}\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/app/cpu.max": "max 100000\n",
        },
    )
    assert Cgroups(root).memory_headroom() == 3 * GIB
    assert memory_available(root) == 3 * GIB
    assert Cgroups(root).cpu_quota() == 1.5
    assert core_count(root) == min(2, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("mount_root", ["/", "/docker/abc"])
def test_version_1(tmp_path: Path, mount_root: str) -> None:
    folder = "sys/fs/cgroup/memory" + ("/docker/abc" if mount_root == "/" else "")
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
            "proc/self/mountinfo": MOUNT_V1.format(root=mount_root),
            "proc/meminfo": f"MemAvailable: {2 * GIB // 1024} kB\n",
            f"{folder}/memory.limit_in_bytes": f"{4 * GIB}\n",
            f"{folder}/memory.usage_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
        },
    )
    assert Cgroups(root).memory_headroom() == GIB
    assert memory_available(root) == GIB
    assert core_count(root) == 1


def test_no_limit(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/a\n3:cpu,cpuacct:/a\n",
            "proc/self/mountinfo": MOUNT_V1.format(root="/"),
            "proc/meminfo": f"MemAvailable: {2 * GIB // 1024} kB\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "5\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        },
    )
    assert Cgroups(root).memory_headroom() is None
    assert Cgroups(root).cpu_quota() is None
    assert memory_available(root) == 2 * GIB
    assert core_count(root) == len(os.sched_getaffinity(0))


def test_a_limit_already_passed_leaves_nothing(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": MOUNT_V2,
            "sys/fs/cgroup/memory.max": "100\n",
            "sys/fs/cgroup/memory.current": "200\n",
        },
    )
    assert memory_available(root) == 0


def test_affinity_bounds_the_threads() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert core_count() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_this_machine() -> None:
    assert 0 < memory_available() < 1 << 50
    # A mapping of its own: what an allocator frees, it may keep.
    with mmap.mmap(-1, 64 << 20) as block:
        block.write(b"x" * len(block))
        with_block = process_rss()
        assert with_block > len(block)
    assert process_rss() < with_block - (32 << 20)


def test_select_platform() -> None:
    assert select_platform("cpu").name == "cpu"
    assert select_platform("auto").default_num_threads() == core_count()
    with pytest.raises(ConfigError, match="device must be auto or one of cpu") as caught:
        select_platform("abacus")
    assert caught.value.param == "device"


def test_a_plugin_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        name = "abacus"

        def is_available(self) -> bool:
            return False

    class Point:
        name = "abacus"

        def load(self) -> type:
            return Absent

    monkeypatch.setattr("octavo.platforms.base.entry_points", lambda group: [Point()])
    assert select_platform("auto").name == "cpu"
    with pytest.raises(ConfigError, match="'abacus' is not usable on this machine"):
        select_platform("abacus")
