"""Giving memory back to the system."""

from __future__ import annotations

import ctypes
import gc


def return_free_memory() -> None:
    """Collect what nobody refers to any more and hand the heap's free pages to the system (glibc only).

    What was set aside from collection (`gc.freeze`) is looked at too, and set aside again.
    """
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
