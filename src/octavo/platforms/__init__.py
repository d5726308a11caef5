"""What the machine offers: processors, memory, devices. Platforms register under the entry point group `octavo.platforms`."""

from octavo.platforms.base import Platform, select_platform
from octavo.platforms.host import cpu_count, memory_available, process_rss

__all__ = ["Platform", "cpu_count", "memory_available", "process_rss", "select_platform"]
