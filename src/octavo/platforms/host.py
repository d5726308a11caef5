"""Memory and processors that this process can really use: what the kernel reports, cut by container limits."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from octavo.platforms.cgroup import Cgroups


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


def cpu_count(root: Path = Path("/")) -> int:
    """Threads worth starting: the processors in the affinity mask, no more than the container's time quota, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = Cgroups(root).cpu_quota()
    # A quota of 1.5 processors still lets two threads make progress; rounding down would waste a third of it.
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def _meminfo(root: Path, name: str) -> int | None:
    try:
        text = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None
