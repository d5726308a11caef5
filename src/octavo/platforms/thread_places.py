"""Where the threads of the kernels run: one on each physical core, the cores of a NUMA node next to one another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from octavo.platforms import host
from octavo.platforms.cgroup import Cgroups
from octavo.platforms.topology import physical_cores

MAX_THREADS = 256
"""That the kernels' pool can have."""


@dataclass(frozen=True)
class ThreadPlaces:
    """Processors of each thread. Empty: the system places them as it likes."""

    cpus: tuple[tuple[int, ...], ...] = ()
    """Of thread i those of one core: it may change between the hardware threads."""
    threads_per_node: tuple[int, ...] = ()
    """How many threads, in their order, belong to each NUMA node."""


UNBOUND = ThreadPlaces()


def thread_places(num_threads: int, root: Path = Path("/")) -> ThreadPlaces:
    """A core for each of `num_threads` threads, if there are exactly so many cores for this process, else `UNBOUND`.

    With fewer threads than cores the system knows better which cores are free; with more, or with less processor time
    than cores (a cgroup's quota), threads would wait for one another in the same place.
    """
    cores = physical_cores(host.allowed_cpus(), root)
    quota = Cgroups(root).cpu_quota()
    if cores is None or num_threads < 2 or len(cores) != num_threads:
        return UNBOUND
    if quota is not None and quota < num_threads:
        return UNBOUND
    per_node = Counter(core.node for core in cores)
    return ThreadPlaces(
        tuple(core.cpus for core in cores), tuple(per_node[node] for node in sorted(per_node))
    )
