"""The processor as a platform: always there."""

from __future__ import annotations

from octavo.platforms import host


class CpuPlatform:
    """Kernels in octavo.ops on the host's own memory."""

    name = "cpu"

    def is_available(self) -> bool:
        """The processor is always there."""
        return True

    def memory_available(self) -> int:
        """Free host memory in bytes, container limits included."""
        return host.memory_available()

    def default_num_threads(self) -> int:
        """One thread for each physical core that this process may use."""
        return host.core_count()
