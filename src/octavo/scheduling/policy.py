"""Who comes first. A rank is a sortable key: the lowest runs first, the highest is preempted first."""

from __future__ import annotations

from collections.abc import Callable

from octavo.lib.errors import ConfigError
from octavo.scheduling.request import Request

Rank = tuple[int, int]
Policy = Callable[[Request], Rank]


def fcfs(request: Request) -> Rank:
    """First come, first served."""
    return 0, request.sequence


def priority(request: Request) -> Rank:
    """The lower `priority` value first; among equals first come, first served."""
    return request.priority, request.sequence


_POLICIES: dict[str, Policy] = {"fcfs": fcfs, "priority": priority}


def get_policy(name: str) -> Policy:
    """Look up a policy by its name.

    Raises:
        ConfigError: there is no such policy.
    """
    if name not in _POLICIES:
        raise ConfigError(
            f"scheduling policy must be one of {sorted(_POLICIES)}, got {name!r}", param="policy"
        )
    return _POLICIES[name]
