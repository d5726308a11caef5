"""Planted bugs: each replaces one small piece of the scheduler by a wrong one. The simulator must notice every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from octavo.scheduling import decode_ahead
from octavo.scheduling import request as request_module
from octavo.scheduling import scheduler as scheduler_module
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.kv.block_pool import NULL_PAGE, BlockPool
from octavo.scheduling.kv.manager import KVManager, PrefixHit
from octavo.scheduling.kv.prefix_index import PageHasher, PrefixIndex, root_hash
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request import Request, RequestStatus
from octavo.scheduling.scheduler import Scheduler
from octavo.types.engine import EngineOutput, EngineRequest, FinishReason, TokenLogprobs
from octavo.types.step import RequestStep

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    """Register a planted bug under the name of its function."""
    MUTATIONS[plant.__name__] = plant
    return plant


# -- several decode steps on one plan ---------------------------------------------------------------------------------


@mutation
def decode_ahead_without_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decode_ahead, "_reserve", lambda *_: None)


@mutation
def decode_ahead_beyond_the_free_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scheduler_module, "decode_steps", lambda budget, kv, most: most)


@mutation
def decode_ahead_beside_a_prefill(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decode_ahead, "_decodes_plainly", lambda request: True)


@mutation
def forget_pages_got_for_steps_ahead(patch: pytest.MonkeyPatch) -> None:
    def reserve(request: Request, steps: int, budget: StepBudget, kv: KVManager) -> None:
        original(request, steps, budget, kv)
        budget.new_pages.pop(request.request_id, None)

    original = decode_ahead._reserve
    patch.setattr(decode_ahead, "_reserve", reserve)


# -- reference counts and the free list -------------------------------------------------------------------------------


@mutation
def forget_a_decref(patch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release
    patch.setattr(BlockPool, "release", lambda self, pages: release(self, list(pages)[1:]))


@mutation
def double_free(patch: pytest.MonkeyPatch) -> None:
    def free(self: KVManager, request: Request, *, forget: bool = False) -> None:
        tables = [list(table) for table in request.pages]
        original(self, request, forget=forget)
        for page in (page for table in tables for page in table if page != NULL_PAGE):
            self.pool._free[page] = None

    original = KVManager.free
    patch.setattr(KVManager, "free", free)


@mutation
def free_twice_at_abort(patch: pytest.MonkeyPatch) -> None:
    def abort(self: Scheduler, request_ids: Iterable[str]) -> list[EngineOutput]:
        ids = list(request_ids)
        for name in ids:
            for table in self.requests[name].pages if name in self.requests else []:
                self.kv.pool.release(table[-1:])
        return original(self, ids)

    original = Scheduler.abort
    patch.setattr(Scheduler, "abort", abort)


@mutation
def keep_pages_at_abort(patch: pytest.MonkeyPatch) -> None:
    def finish(self: Scheduler, request: Request, *, forget: bool = False) -> None:
        if request.status is RequestStatus.RUNNING and len(request.token_ids) < request.max_total_tokens:
            request.pages = []
        original(self, request, forget=forget)

    original = Scheduler._finish
    patch.setattr(Scheduler, "_finish", finish)


@mutation
def evict_a_referenced_page(patch: pytest.MonkeyPatch) -> None:
    """A page that is found again stays in the free list."""

    def share(self: BlockPool, pages: Iterable[int]) -> None:
        for page in pages:
            if page != NULL_PAGE:
                self.ref_counts[page] += 1

    patch.setattr(BlockPool, "share", share)


@mutation
def leave_evicted_pages_in_the_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrefixIndex, "discard", lambda self, page: None)


# -- tables and windows -----------------------------------------------------------------------------------------------


@mutation
def off_by_one_page_count(patch: pytest.MonkeyPatch) -> None:
    original = KVManager.extend
    patch.setattr(KVManager, "extend", lambda self, request, count: original(self, request, count - 1))


@mutation
def free_a_token_too_early_in_windows(patch: pytest.MonkeyPatch) -> None:
    def first_needed(self: KVManager, position: int, window: int) -> int:
        return max(0, position - window + 2) // self.block_size if window else 0

    patch.setattr(KVManager, "_first_needed", first_needed)


@mutation
def never_free_in_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVManager, "slide", lambda self, request: None)


@mutation
def overrate_the_free_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVManager, "fitting_tokens", lambda self, request, want: want)


@mutation
def take_what_can_never_fit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVManager, "max_tokens", lambda self, chunked: 10**9)


# -- prefix cache -----------------------------------------------------------------------------------------------------


@mutation
def share_a_partial_page(patch: pytest.MonkeyPatch) -> None:
    def index_pages(self: KVManager, request: Request) -> None:
        computed = request.num_computed_tokens
        partial = min(len(request.token_ids), computed + 1)
        request.num_computed_tokens = partial if partial <= request.capacity else computed
        original(self, request)
        request.num_computed_tokens = computed

    original = KVManager.index_pages
    patch.setattr(KVManager, "index_pages", index_pages)


@mutation
def skip_the_salt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(request_module, "root_hash", lambda extras: root_hash({}))


@mutation
def hash_pages_without_their_prefix(patch: pytest.MonkeyPatch) -> None:
    def extend(self: PageHasher, chain: list[bytes], token_ids: list[int], num_pages: int) -> None:
        for page in range(len(chain) - 1, num_pages):
            tokens = token_ids[page * self.block_size : (page + 1) * self.block_size]
            original(self, link := [chain[0]], tokens, 1)
            chain.append(link[-1])

    original = PageHasher.extend
    patch.setattr(PageHasher, "extend", extend)


@mutation
def mix_up_the_groups(patch: pytest.MonkeyPatch) -> None:
    find, insert = PrefixIndex.find, PrefixIndex.insert
    patch.setattr(PrefixIndex, "find", lambda self, key: find(self, (0, key[1])))
    patch.setattr(PrefixIndex, "insert", lambda self, key, page: insert(self, (0, key[1]), page))


@mutation
def hit_the_whole_prompt(patch: pytest.MonkeyPatch) -> None:
    def find_prefix(self: KVManager, request: Request) -> PrefixHit:
        request.token_ids.append(0)
        hit = original(self, request)
        request.token_ids.pop()
        del request.page_hashes[1 + len(request.token_ids) // self.block_size :]
        return hit

    original = KVManager.find_prefix
    patch.setattr(KVManager, "find_prefix", find_prefix)


@mutation
def ignore_windows_in_hits(patch: pytest.MonkeyPatch) -> None:
    """Only groups of full attention are asked; a window group gets what is there."""

    def group_prefix(self: KVManager, group: int, window: int, hashes: list[bytes], limit: int) -> int:
        return limit if window else original(self, group, window, hashes, limit)

    original = KVManager._group_prefix
    patch.setattr(KVManager, "_group_prefix", group_prefix)


@mutation
def count_computed_tokens_wrong(patch: pytest.MonkeyPatch) -> None:
    def admit(self: KVManager, request: Request, hit: PrefixHit) -> None:
        original(self, request, hit)
        request.num_computed_tokens += hit.num_pages > 0

    original = KVManager.admit
    patch.setattr(KVManager, "admit", admit)


@mutation
def cache_hits_with_prompt_logprobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "reads_prefix_cache", True)


# -- who runs ---------------------------------------------------------------------------------------------------------


def _after_preemption(patch: pytest.MonkeyPatch, damage: Callable[[Scheduler, Request], None]) -> None:
    def preempt(self: Scheduler, victim: Request, budget: StepBudget) -> None:
        original(self, victim, budget)
        damage(self, victim)

    original = Scheduler._preempt
    patch.setattr(Scheduler, "_preempt", preempt)


@mutation
def lose_a_token_at_preemption(patch: pytest.MonkeyPatch) -> None:
    def damage(scheduler: Scheduler, victim: Request) -> None:
        del victim.token_ids[max(victim.num_prompt_tokens, len(victim.token_ids) - 1) :]

    _after_preemption(patch, damage)


@mutation
def keep_the_computed_count_at_preemption(patch: pytest.MonkeyPatch) -> None:
    def free(self: KVManager, request: Request, *, forget: bool = False) -> None:
        computed = request.num_computed_tokens
        original(self, request, forget=forget)
        request.num_computed_tokens = computed

    def admit(self: KVManager, request: Request, hit: PrefixHit) -> None:
        computed = request.num_computed_tokens
        admit_original(self, request, hit)
        request.num_computed_tokens = max(computed, request.num_computed_tokens)

    original, admit_original = KVManager.free, KVManager.admit
    patch.setattr(KVManager, "free", free)
    patch.setattr(KVManager, "admit", admit)


@mutation
def preempted_goes_to_the_tail(patch: pytest.MonkeyPatch) -> None:
    def damage(scheduler: Scheduler, victim: Request) -> None:
        scheduler.waiting.remove(victim)
        victim.sequence = scheduler._num_arrivals
        scheduler._num_arrivals += 1
        scheduler.waiting.add(victim)

    _after_preemption(patch, damage)


@mutation
def executor_not_told_of_preemption(patch: pytest.MonkeyPatch) -> None:
    _after_preemption(patch, lambda scheduler, victim: scheduler._released.remove(victim.request_id))


@mutation
def preempted_stays_in_the_plan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepBudget, "give_back", lambda self, request: None)


@mutation
def starve_the_last(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Scheduler, request: Request, want: int, budget: StepBudget) -> None:
        if len(self.running) == 1 or request is not self.running[-1]:
            original(self, request, want, budget)

    original = Scheduler._advance
    patch.setattr(Scheduler, "_advance", advance)


@mutation
def preempt_the_oldest(patch: pytest.MonkeyPatch) -> None:
    def grow(self: Scheduler, request: Request, want: int, budget: StepBudget) -> int:
        self.running.reverse()
        try:
            return original(self, request, want, budget)
        finally:
            self.running.reverse()

    original = Scheduler._grow
    patch.setattr(Scheduler, "_grow", grow)


@mutation
def admit_the_youngest_first(patch: pytest.MonkeyPatch) -> None:
    original = WaitingQueue.__getitem__
    patch.setattr(WaitingQueue, "__getitem__", lambda self, position: original(self, -1 - position))


@mutation
def exceed_the_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepBudget, "offer", lambda self, request, want: min(want, self.tokens_left + 1))


@mutation
def let_decodes_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepBudget, "offer", lambda self, request, want: min(want, self.tokens_left))


@mutation
def admit_only_one_in_a_step(patch: pytest.MonkeyPatch) -> None:
    original = Scheduler._admit

    def admit(self: Scheduler, request: Request, hit: PrefixHit, budget: StepBudget) -> bool:
        return not budget.admitted and original(self, request, hit, budget)

    patch.setattr(Scheduler, "_admit", admit)


# -- what comes out ---------------------------------------------------------------------------------------------------


@mutation
def one_token_too_many(patch: pytest.MonkeyPatch) -> None:
    def append(self: Request, token_id: int) -> FinishReason | None:
        reason = original(self, token_id)
        return None if len(self.token_ids) == self.max_total_tokens else reason

    original = Request.append
    patch.setattr(Request, "append", append)


@mutation
def ignore_stop_ids(patch: pytest.MonkeyPatch) -> None:
    def append(self: Request, token_id: int) -> FinishReason | None:
        return None if original(self, token_id) is FinishReason.STOP else original_length(self)

    def original_length(self: Request) -> FinishReason | None:
        return FinishReason.LENGTH if len(self.token_ids) >= self.max_total_tokens else None

    original = Request.append
    patch.setattr(Request, "append", append)


@mutation
def forget_the_continued_tokens(patch: pytest.MonkeyPatch) -> None:
    def init(self: Request, source: EngineRequest, max_total_tokens: int) -> None:
        original(self, source, max_total_tokens)
        del self.token_ids[self.num_prompt_tokens :]

    original = Request._init_tokens
    patch.setattr(Request, "_init_tokens", init)


@mutation
def send_prompt_logprobs_again(patch: pytest.MonkeyPatch) -> None:
    def new_prompt_logprobs(
        self: Scheduler, request: Request, start: int, entries: list[TokenLogprobs] | None
    ) -> list[TokenLogprobs] | None:
        return entries if request.wants_prompt_logprobs else None

    patch.setattr(Scheduler, "_new_prompt_logprobs", new_prompt_logprobs)


@mutation
def fail_the_others_too(patch: pytest.MonkeyPatch) -> None:
    def take_result(
        self: Scheduler, request: Request, count: int, result: RequestStep
    ) -> EngineOutput | None:
        if result.error is not None:
            self.abort([other.request_id for other in self.running if other is not request][:1])
        return original(self, request, count, result)

    original = Scheduler._take_result
    patch.setattr(Scheduler, "_take_result", take_result)


@mutation
def count_prompt_tokens_again_after_preemption(patch: pytest.MonkeyPatch) -> None:
    def damage(scheduler: Scheduler, victim: Request) -> None:
        scheduler._counters.prompt_tokens += victim.num_prompt_tokens

    _after_preemption(patch, damage)
