"""How often a dead engine may be started again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 600.0


class RestartBudget:
    """Allows `limit` restarts in ten minutes: a crash now and then is survived, a crash loop is not hidden.

    Args:
        limit: Restarts within the window; 0: none.
        clock: Monotonic seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self) -> bool:
        """Whether one more restart is allowed; counts it if so."""
        now = self._clock()
        while self._times and now - self._times[0] > WINDOW_SECONDS:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True
