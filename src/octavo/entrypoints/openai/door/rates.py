"""Requests and tokens a minute for each caller, counted by the library `limits` (extra `limits`)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.engine.stats import StepStats
from octavo.lib.errors import ConfigError, RateLimitError

if TYPE_CHECKING:
    from limits import RateLimitItem


@dataclass(frozen=True)
class Allowance:
    """What a caller has left of one limit."""

    unit: str
    """`requests` or `tokens`."""
    limit: int
    remaining: int
    seconds_to_reset: float

    def headers(self) -> dict[str, str]:
        """As OpenAI names them."""
        return {
            f"x-ratelimit-limit-{self.unit}": str(self.limit),
            f"x-ratelimit-remaining-{self.unit}": str(self.remaining),
            f"x-ratelimit-reset-{self.unit}": f"{math.ceil(self.seconds_to_reset)}s",
        }


class RateLimits:
    """Windows of one minute for each caller. Also a `StatsListener`: tokens are charged when a request ends.

    A caller whose tokens are used up is refused until the window ends; a request that is let in is never cut short, so a
    window may be overdrawn by the requests that run at once.

    Args:
        requests: Requests a minute; 0: no limit.
        tokens: Tokens a minute, of prompts and answers; 0: no limit.
    """

    def __init__(self, requests: int, tokens: int) -> None:
        try:
            from limits import RateLimitItemPerMinute
            from limits.storage import MemoryStorage
            from limits.strategies import FixedWindowRateLimiter
        except ImportError as error:
            raise ConfigError(
                "--rate-limit-requests and --rate-limit-tokens need the package `limits`: pip install octavo[limits]",
                param="rate_limit_requests",
            ) from error
        self._windows = FixedWindowRateLimiter(MemoryStorage())
        self._limits: dict[str, RateLimitItem] = {
            unit: RateLimitItemPerMinute(amount, namespace=unit)
            for unit, amount in (("requests", requests), ("tokens", tokens))
            if amount
        }

    def enter(self, caller: str) -> dict[str, str]:
        """Count one request.

        Returns:
            The `x-ratelimit-*` headers of the answer.

        Raises:
            RateLimitError: the minute's requests or tokens are used up.
        """
        for unit, limit in self._limits.items():
            used_up = (
                not self._windows.hit(limit, caller)
                if unit == "requests"
                else not self._windows.test(limit, caller)
            )
            if used_up:
                left = self._allowance(unit, limit, caller)
                raise RateLimitError(
                    f"The API key {caller!r} may use {left.limit} {unit} a minute, which are used up; "
                    f"try again in {math.ceil(left.seconds_to_reset)} s.",
                    retry_after=left.seconds_to_reset,
                )
        return self.headers(caller)

    def headers(self, caller: str) -> dict[str, str]:
        """What the caller has left, as headers."""
        found: dict[str, str] = {}
        for unit, limit in self._limits.items():
            found |= self._allowance(unit, limit, caller).headers()
        return found

    def on_step(self, stats: StepStats) -> None:
        """See `StatsListener.on_step`."""
        limit = self._limits.get("tokens")
        if limit is None:
            return
        for finished in stats.finished:
            tokens = finished.num_prompt_tokens + sum(finished.num_generation_tokens)
            if finished.origin is not None and tokens:
                self._charge(limit, finished.origin.caller, tokens)

    def _charge(self, limit: RateLimitItem, caller: str, tokens: int) -> None:
        # `hit` counts even what goes over the limit, so that a window is overdrawn and not forgotten.
        self._windows.hit(limit, caller, cost=tokens)

    def _allowance(self, unit: str, limit: RateLimitItem, caller: str) -> Allowance:
        window = self._windows.get_window_stats(limit, caller)
        left = max(0.0, window.reset_time - time.time())
        return Allowance(unit, limit.amount, max(0, window.remaining), left)
