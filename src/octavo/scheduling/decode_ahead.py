"""Several decode steps on one plan: the scheduler's, the worker's and the messages' Python is paid once for all of them."""

from __future__ import annotations

from octavo.scheduling.budget import StepBudget
from octavo.scheduling.kv.manager import KVManager
from octavo.scheduling.request import Request


def decode_steps(budget: StepBudget, kv: KVManager, most: int) -> int:
    """How many decode steps the requests of a finished budget can run at once, and the pages for them.

    One, unless every request decodes and draws plainly. Only free pages are taken: nobody is preempted for this.
    """
    requests = budget.requests.values()
    if most <= 1 or not requests or budget.admitted or budget.short_of_pages:
        return 1
    if not all(map(_decodes_plainly, requests)):
        return 1
    steps = min([most, *(request.max_total_tokens - len(request.token_ids) for request in requests)])
    for request in requests:
        steps = min(steps, kv.fitting_tokens(request, steps))
        _reserve(request, steps, budget, kv)
    return max(1, steps)


def _decodes_plainly(request: Request) -> bool:
    return request.num_remaining_tokens == 1 and request.draws_plainly


def _reserve(request: Request, steps: int, budget: StepBudget, kv: KVManager) -> None:
    """Make room for the next `steps` tokens of a request."""
    if request.num_computed_tokens + steps <= request.capacity:
        return
    added = kv.extend(request, steps)
    before = budget.new_pages.get(request.request_id, [[] for _ in added])
    budget.new_pages[request.request_id] = [old + new for old, new in zip(before, added, strict=True)]
