"""The budget of one step: made by `schedule()`, spent, turned into a plan, thrown away."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.scheduling.request import Request


@dataclass(slots=True)
class StepBudget:
    """Tokens left to hand out in this step, and who got some.

    `prefill_limit` bounds what one prefill takes once a decode is part of the step (0: no bound), so that a decode
    does not wait long behind it.
    """

    tokens_left: int
    prefill_limit: int
    scheduled: dict[str, int] = field(default_factory=dict)
    new_pages: dict[str, list[list[int]]] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    admitted: list[Request] = field(default_factory=list)
    has_decodes: bool = False
    short_of_pages: bool = False
    """Somebody was preempted or left out for want of pages: nobody is admitted in this step."""

    def offer(self, request: Request, want: int) -> int:
        """How many of `want` tokens the request may have."""
        want = min(want, self.tokens_left)
        if self.prefill_limit and self.has_decodes and want > 1:
            want = min(want, self.prefill_limit)
        return want

    def take(self, request: Request, num_tokens: int) -> None:
        """Schedule `num_tokens` tokens of `request`."""
        self.tokens_left -= num_tokens
        self.scheduled[request.request_id] = num_tokens
        self.requests[request.request_id] = request

    def give_back(self, request: Request) -> None:
        """Undo `take` for a request that was preempted after it."""
        self.tokens_left += self.scheduled.pop(request.request_id, 0)
        self.requests.pop(request.request_id, None)
        self.new_pages.pop(request.request_id, None)
