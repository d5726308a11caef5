"""Memory and processors that this process can really use: what the kernel reports, cut by container limits."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from octavo.platforms.cgroup import Cgroups
from octavo.platforms.topology import physical_cores


def memory_available(root: Path = Path("/")) -> int:
    """Bytes that can be allocated now without swapping and without meeting a container's limit."""
    free = _meminfo(root, "MemAvailable")
    if free is None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    headroom = Cgroups(root).memory_headroom()
    return free if headroom is None else min(free, headroom)


def process_rss(root: Path = Path("/")) -> int:
    """Bytes of this process that lie in memory now (0 where the system does not say)."""
    try:
        pages = int((root / "proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def allowed_cpus() -> frozenset[int]:
    """Numbers of the processors that this process may run on: its affinity mask, which a cpuset narrows too."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def core_count(root: Path = Path("/")) -> int:
    """Threads worth starting: the physical cores in the affinity mask, no more than the container's time quota, at least 1.

    Hardware threads of one core share what the kernels need, so they count once; where the system does not say which
    belong together, each counts.
    """
    allowed = allowed_cpus()
    cores = physical_cores(allowed, root)
    count = len(allowed) if cores is None else len(cores)
    quota = Cgroups(root).cpu_quota()
    # A quota of 1.5 processors still lets two threads make progress; rounding down would waste a third of it.
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _meminfo(root: Path, name: str) -> int | None:
    try:
        text = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None
