"""Where responses are kept: an interface of four methods, and the one that forgets with the process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StoreLimits:
    """Bounds of a store. What was used longest ago goes first; reading a record uses it."""

    max_count: int
    max_bytes: int
    max_age: float
    """Seconds since it was last used."""


class ResponseStore(Protocol):
    """Keeps records under ids. No method holds up the event loop."""

    async def get(self, response_id: str) -> bytes | None:
        """The record, which counts as used now; None if it is not there (any more)."""
        ...

    async def put(self, response_id: str, record: bytes) -> None:
        """Keep a record, in the place of an earlier one; others may have to go. One over the limit is not kept."""
        ...

    async def delete(self, response_id: str) -> bool:
        """Forget a record; False if it was not there."""
        ...

    async def close(self) -> None:
        """Finish what was begun. Nothing may be called after."""
        ...


class MemoryStore:
    """Records in this process.

    Args:
        clock: Seconds.
    """

    def __init__(self, limits: StoreLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._records: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._num_bytes = 0

    async def get(self, response_id: str) -> bytes | None:
        """See `ResponseStore.get`."""
        self._forget_old()
        if response_id not in self._records:
            return None
        _, record = self._records[response_id]
        self._records[response_id] = (self._clock(), record)
        self._records.move_to_end(response_id)
        return record

    async def put(self, response_id: str, record: bytes) -> None:
        """See `ResponseStore.put`."""
        self._drop(response_id)
        if len(record) > self._limits.max_bytes:
            return
        self._records[response_id] = (self._clock(), record)
        self._num_bytes += len(record)
        self._forget_old()
        while len(self._records) > self._limits.max_count or self._num_bytes > self._limits.max_bytes:
            self._drop(next(iter(self._records)))

    async def delete(self, response_id: str) -> bool:
        """See `ResponseStore.delete`."""
        self._forget_old()
        return self._drop(response_id)

    async def close(self) -> None:
        """See `ResponseStore.close`."""
        self._records.clear()
        self._num_bytes = 0

    def _forget_old(self) -> None:
        oldest = self._clock() - self._limits.max_age
        while self._records:
            response_id, (used, _) = next(iter(self._records.items()))
            if used >= oldest:
                return
            self._drop(response_id)

    def _drop(self, response_id: str) -> bool:
        if response_id not in self._records:
            return False
        self._num_bytes -= len(self._records.pop(response_id)[1])
        return True
