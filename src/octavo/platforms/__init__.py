"""What the machine offers: processors, memory, devices. Platforms register under the entry point group `octavo.platforms`."""

from octavo.platforms.base import Platform, select_platform
from octavo.platforms.host import core_count, memory_available, process_rss
from octavo.platforms.thread_places import MAX_THREADS, UNBOUND, ThreadPlaces, thread_places

__all__ = [
    "MAX_THREADS",
    "UNBOUND",
    "Platform",
    "ThreadPlaces",
    "core_count",
    "memory_available",
    "process_rss",
    "select_platform",
    "thread_places",
]
