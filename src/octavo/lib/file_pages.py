"""Memory of mapped files."""

from __future__ import annotations

import mmap

_DONT_NEED: int | None = getattr(mmap, "MADV_DONTNEED", None)  # not on every system


def forget_pages(file: mmap.mmap, offset: int, nbytes: int) -> None:
    """Let the system take back the pages of a read-only map that lie wholly within [offset, offset + nbytes).

    They stop counting as this process's memory; who reads them again gets them from the file again.
    """
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if _DONT_NEED is not None and end > first:
        file.madvise(_DONT_NEED, first, end - first)
