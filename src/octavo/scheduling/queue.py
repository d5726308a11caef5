"""The waiting queue: ordered by the policy's rank and bounded for newcomers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NoReturn

from octavo.lib.errors import OverloadedError
from octavo.scheduling.policy import Policy, Rank
from octavo.scheduling.request import Request

_MIN_RETRY_AFTER = 1.0
_MAX_RETRY_AFTER = 60.0
_SMOOTHING = 0.1


class DrainRate:
    """Mean time between two departures from the queue while it is not empty (exponentially smoothed)."""

    def __init__(self) -> None:
        self._interval = 0.0
        self._last: float | None = None

    def departed(self, now: float, *, more: bool) -> None:
        """Note one departure at `now`; `more` says whether requests still wait."""
        if self._last is not None:
            self._interval += _SMOOTHING * (now - self._last - self._interval)
        self._last = now if more else None

    def seconds_for(self, count: int) -> float:
        """Expected time for `count` departures, within the bounds of a sensible Retry-After."""
        return min(_MAX_RETRY_AFTER, max(_MIN_RETRY_AFTER, count * self._interval))


class WaitingQueue:
    """Requests that wait to be admitted, best rank first.

    A preempted request comes back by its rank, which is ahead of all that were never admitted (FCFS), or of all that
    are of its priority or lower.

    Args:
        limit: Requests that may wait.
        token_limit: Tokens of their prompts from which on nobody is let in; 0: no bound.
    """

    def __init__(self, policy: Policy, limit: int, token_limit: int = 0) -> None:
        self._policy = policy
        self._limit = limit
        self._token_limit = token_limit
        self._num_tokens = 0
        self._requests: list[Request] = []
        self._drain = DrainRate()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __getitem__(self, position: int) -> Request:
        return self._requests[position]

    def check_room(self) -> None:
        """Refuse newcomers when the queue is full.

        Raises:
            OverloadedError: `retry_after` is the time in which half of the queue should have left.
        """
        if len(self._requests) >= self._limit:
            self._refuse(f"{len(self._requests)} requests wait already (limit {self._limit})")
        if self._token_limit and self._num_tokens >= self._token_limit:
            self._refuse(f"{self._num_tokens} prompt tokens wait already (limit {self._token_limit})")

    def add(self, request: Request) -> None:
        """Queue `request` by its rank."""
        insort(self._requests, request, key=self._policy)
        self._num_tokens += request.num_prompt_tokens

    def take(self, request: Request, now: float) -> None:
        """Take out a request that is admitted at time `now`."""
        self.remove(request)
        self._drain.departed(now, more=bool(self._requests))

    def remove(self, request: Request) -> None:
        """Take out a request wherever it stands."""
        rank: Rank = self._policy(request)
        position = bisect_left(self._requests, rank, key=self._policy)
        assert self._requests[position] is request
        del self._requests[position]
        self._num_tokens -= request.num_prompt_tokens

    def _refuse(self, reason: str) -> NoReturn:
        raise OverloadedError(
            f"the server is busy: {reason}; try again later",
            retry_after=self._drain.seconds_for(len(self._requests) // 2),
        )
