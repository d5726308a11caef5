"""The scheduler. It has one rule: the computed tokens of each request catch up with its known tokens, within one budget.

Prefill, chunked prefill, decode and the recomputation after a preemption are the same thing. (The rule is that of
vLLM's v1 scheduler.) A step is `plan = schedule()`, then the executor runs the plan, then `update(plan, output)`.

What keeps everybody moving: `add` refuses what can never fit; the best-ranked running request can always go on, as it
takes the pages of the others if need be; and whoever is preempted keeps its tokens and is first to be admitted again.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from octavo.config.octavo_config import CacheConfig, SchedulerConfig
from octavo.lib.errors import ConfigError, InvalidRequestError, OctavoError
from octavo.scheduling.admission import AdmissionLimits
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.decode_ahead import decode_steps
from octavo.scheduling.integrity import check_integrity
from octavo.scheduling.kv.manager import KVManager, PrefixHit
from octavo.scheduling.policy import get_policy
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request import Request, RequestStatus
from octavo.types.engine import EngineOutput, EngineRequest, FinishReason, SchedulerStats, TokenLogprobs
from octavo.types.kv import KVLayout
from octavo.types.step import RequestStep, StepOutput, StepPlan


@dataclass(slots=True)
class _Counters:
    """What happened since the last report. Only ever added to, and replaced by a fresh one when reported."""

    prefix_queries: int = 0
    prefix_hits: int = 0
    num_preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0


class Scheduler:
    """Decides who runs in each step and when an answer is over.

    Args:
        scheduler: Budget, number of sequences, policy, queue bound.
        cache: Whether to use the prefix cache.
        layout: Page size and groups.
        num_blocks: Pages in the pool, the null page (block 0) not counted: blocks 1 to num_blocks are handed out.
        max_model_len: Most tokens of prompt and answer together.
        clock: Monotonic seconds, for the events of requests and for `retry_after`.

    Raises:
        ConfigError: a limit is below 1 or the policy is not known.
    """

    def __init__(
        self,
        scheduler: SchedulerConfig,
        cache: CacheConfig,
        layout: KVLayout,
        num_blocks: int,
        max_model_len: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_limits(scheduler, layout, num_blocks)
        self.config = scheduler
        self.kv = KVManager(layout, num_blocks, enable_prefix_caching=cache.enable_prefix_caching)
        # So that each running request gets at least one token in each step.
        self._max_running = min(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
        self._limits = self._admission_limits(max_model_len)
        self._policy = get_policy(scheduler.policy)
        self._clock = clock
        self.requests: dict[str, Request] = {}
        self.waiting = WaitingQueue(
            self._policy, scheduler.max_num_queued_reqs, scheduler.max_num_queued_tokens
        )
        self.running: list[Request] = []  # best rank first
        self._released: list[str] = []
        self._in_flight: list[tuple[Request, int]] = []
        self._counters = _Counters()
        self._num_steps = 0
        self._num_arrivals = 0

    def _admission_limits(self, max_model_len: int) -> AdmissionLimits:
        chunked, kv = self.config.enable_chunked_prefill, self.kv
        return AdmissionLimits(
            max_model_len=max_model_len,
            max_kv_tokens=kv.max_tokens(chunked=chunked),
            max_first_step=None if chunked else self.config.max_num_batched_tokens,
            pool=f"{kv.pool.num_blocks} pages of {kv.block_size} tokens, {kv.num_groups} page groups",
        )

    # -- requests come and go -----------------------------------------------------------------------------------------

    def add(self, request: EngineRequest) -> None:
        """Queue a request.

        Raises:
            InvalidRequestError: it can never run: empty, too long for the model or the pool, or its id is in use.
            OverloadedError: the waiting queue is full.
        """
        if request.request_id in self.requests:
            raise InvalidRequestError(
                f"request id {request.request_id!r} is already in use", param="request_id"
            )
        max_total_tokens = self._limits.max_total_tokens(request)
        self.waiting.check_room()
        entry = Request(
            request, sequence=self._num_arrivals, max_total_tokens=max_total_tokens, now=self._clock()
        )
        self._num_arrivals += 1
        self.requests[entry.request_id] = entry
        self.waiting.add(entry)

    def abort(self, request_ids: Iterable[str]) -> list[EngineOutput]:
        """End requests in whatever state they are; their pages are free from the next `schedule()` on.

        Ids that are not known (say, just finished) are skipped.
        """
        aborted = [self.requests[request_id] for request_id in request_ids if request_id in self.requests]
        outputs = [self._output(request, [], FinishReason.ABORT) for request in dict.fromkeys(aborted)]
        for request in dict.fromkeys(aborted):
            if request.status is RequestStatus.WAITING:
                self.waiting.remove(request)
            else:
                self.running.remove(request)
            self._finish(request)
        return outputs

    def has_work(self) -> bool:
        """Whether a `schedule()` would bring tokens to run."""
        return bool(self.running) or len(self.waiting) > 0

    def _finish(self, request: Request, *, forget: bool = False) -> None:
        self._evict(request, forget=forget)
        request.status = RequestStatus.FINISHED
        del self.requests[request.request_id]

    def _evict(self, request: Request, *, forget: bool = False) -> None:
        """Take the pages, and the state in the executor, of a request."""
        self.kv.free(request, forget=forget)
        if request.resident:
            self._released.append(request.request_id)
            request.resident = False

    # -- one step -----------------------------------------------------------------------------------------------------

    def schedule(self, max_decode_steps: int = 1) -> StepPlan:
        """Plan the next step: running requests first, decodes before prefills, then new ones as far as budget and pages go.

        Where nobody waits and all decode, up to `max_decode_steps` steps are planned at once.

        While `has_work()`, a plan has at least one token. An empty plan need not be executed.

        Raises:
            OctavoError: the plan before was not followed by `update`, and not all of its requests were aborted.
        """
        if any(request.status is RequestStatus.RUNNING for request, _count in self._in_flight):
            raise OctavoError("schedule() was called twice without update()")
        budget = StepBudget(self.config.max_num_batched_tokens, self._prefill_limit)
        prefills = []
        for request in tuple(self.running):
            if len(request.token_ids) - request.num_computed_tokens > 1:
                prefills.append(request)
            elif request.status is RequestStatus.RUNNING:
                budget.has_decodes = True
                self._advance(request, 1, budget)
        for request in prefills:
            if request.status is RequestStatus.RUNNING and budget.tokens_left:
                self._advance(request, budget.offer(request, request.num_remaining_tokens), budget)
        if not budget.short_of_pages:
            self._admit_waiting(budget)
        someone_waits = len(self.waiting) or len(budget.scheduled) < len(self.running)
        most = 1 if someone_waits else max_decode_steps
        return self._plan(budget, decode_steps(budget, self.kv, most))

    @property
    def _prefill_limit(self) -> int:
        return self.config.long_prefill_token_threshold if self.config.enable_chunked_prefill else 0

    def _advance(self, request: Request, want: int, budget: StepBudget) -> None:
        """Schedule up to `want` tokens of a running request; if need be, take the pages of those that rank below it."""
        if request.num_computed_tokens + want > request.capacity:
            want = self._grow(request, want, budget)
            if not want:
                return
        budget.take(request, want)

    def _grow(self, request: Request, want: int, budget: StepBudget) -> int:
        """Get pages for up to `want` tokens; returns for how many, 0 if nobody ranks below the request."""
        least = 1 if self.config.enable_chunked_prefill else want
        self.kv.slide(request)
        while (fitting := self.kv.fitting_tokens(request, want)) < least:
            budget.short_of_pages = True
            victim = self.running[-1]
            if victim is request:
                return 0
            self._preempt(victim, budget)
        budget.new_pages[request.request_id] = self.kv.extend(request, fitting)
        return fitting

    def _preempt(self, victim: Request, budget: StepBudget) -> None:
        """Take all pages of `victim`; it keeps its tokens and waits at the head of its rank to be computed again."""
        budget.give_back(victim)
        self._evict(victim)
        self.running.remove(victim)
        victim.status = RequestStatus.WAITING
        self.waiting.add(victim)
        self._counters.num_preemptions += 1

    def _admit_waiting(self, budget: StepBudget) -> None:
        """Let the waiting run in their order, as far as seats, budget and pages go.

        Who starts with pages that a running request is just computing is put off (its seat is kept): once they are
        there, they need not be computed a second time.
        """
        if not len(self.waiting) or len(self.running) >= self._max_running:
            return
        coming = self.kv.coming_pages(self.running)
        num_put_off = 0
        while num_put_off < len(self.waiting) and len(self.running) + num_put_off < self._max_running:
            request = self.waiting[num_put_off]
            hit = self.kv.find_prefix(request)
            if self.kv.next_page_key(request, hit) in coming:
                num_put_off += 1
            elif budget.tokens_left and self._admit(request, hit, budget):
                coming |= self.kv.coming_pages([request])
            else:
                return

    def _admit(self, request: Request, hit: PrefixHit, budget: StepBudget) -> bool:
        """Let a waiting request run, if its known tokens fit beside those that run already."""
        remaining = len(request.token_ids) - hit.num_pages * self.kv.block_size
        want = budget.offer(request, remaining)
        if not self._may_start(want, remaining):
            return False
        # A page to spare for each running request, or their next tokens would drive the newcomer out again.
        if self.running and not self.kv.has_room(request, hit, want, len(self.running)):
            return False
        now = self._clock()
        self._note_admission(request, hit.num_pages * self.kv.block_size, now)
        self.waiting.take(request, now)
        self.kv.admit(request, hit)
        want = self.kv.fitting_tokens(request, want)
        self.kv.extend(request, want)
        request.status = RequestStatus.RUNNING
        request.resident = True
        insort(self.running, request, key=self._policy)
        budget.admitted.append(request)
        budget.take(request, want)
        return True

    def _may_start(self, want: int, remaining: int) -> bool:
        """Without chunked prefill the rest must come in one step, unless even an empty step is too small for it."""
        whole = min(remaining, self.config.max_num_batched_tokens)
        return self.config.enable_chunked_prefill or want >= whole

    def _note_admission(self, request: Request, num_hits: int, now: float) -> None:
        if request.num_cached_tokens is not None:
            return
        if request.events is not None:
            request.events["scheduled"] = now
        if self.kv.enable_prefix_caching and request.reads_prefix_cache:
            self._counters.prefix_queries += len(request.token_ids)
            self._counters.prefix_hits += num_hits

    def _plan(self, budget: StepBudget, num_steps: int) -> StepPlan:
        released: list[str] = []
        if budget.scheduled:
            released, self._released = self._released, []
        self._in_flight = [
            (budget.requests[request_id], count) for request_id, count in budget.scheduled.items()
        ]
        self._num_steps += 1
        return StepPlan(
            step_id=self._num_steps,
            released=released,
            new_requests=[request.as_new() for request in budget.admitted],
            num_scheduled_tokens=budget.scheduled,
            new_block_ids=budget.new_pages,
            num_steps=num_steps,
        )

    # -- what came of it ----------------------------------------------------------------------------------------------

    def update(self, plan: StepPlan, output: StepOutput) -> list[EngineOutput]:
        """Take in the results of a plan; returns what there is to tell about each request that got something new.

        Raises:
            OctavoError: the output does not belong to the plan.
        """
        if plan.step_id != self._num_steps or output.step_id != plan.step_id:
            raise OctavoError(f"the output of step {output.step_id} does not answer plan {self._num_steps}")
        in_flight, self._in_flight = self._in_flight, []
        if len(in_flight) != len(output.results):
            raise OctavoError(
                f"{len(in_flight)} requests were scheduled, {len(output.results)} results came back"
            )
        outputs = []
        for (request, count), result in zip(in_flight, output.results, strict=True):
            if result.request_id != request.request_id:
                raise OctavoError(
                    f"a result of {result.request_id!r} came where {request.request_id!r} was scheduled"
                )
            if request.status is RequestStatus.RUNNING:  # else it was aborted meanwhile
                news = self._take_result(request, count, result)
                if news is not None:
                    outputs.append(news)
        if any(news.finish_reason is not None for news in outputs):
            self.running = [request for request in self.running if request.status is RequestStatus.RUNNING]
        return outputs

    def _take_result(self, request: Request, count: int, result: RequestStep) -> EngineOutput | None:
        if result.error is not None:
            news = self._output(request, [], FinishReason.ERROR, error=result.error)
            news.error_type = result.error_type
            self._finish(request, forget=True)
            return news
        start = request.num_computed_tokens
        request.num_computed_tokens = start + count
        complete = request.num_computed_tokens == len(request.token_ids)
        if complete != bool(result.token_ids or result.pooled):
            raise OctavoError(
                f"request {request.request_id!r}: {len(result.token_ids)} tokens were sampled with "
                f"{request.num_computed_tokens} of {len(request.token_ids)} tokens computed"
            )
        self.kv.index_pages(request)
        if request.pooling is not None:
            return self._take_vector(request, result.pooled)
        prompt_logprobs = None
        if result.prompt_logprobs:
            prompt_logprobs = self._new_prompt_logprobs(request, start, result.prompt_logprobs)
        if not complete:
            return (
                self._output(request, [], None, prompt_logprobs=prompt_logprobs) if prompt_logprobs else None
            )
        return self._take_tokens(request, result, prompt_logprobs)

    def _take_vector(self, request: Request, pooled: bytes | None) -> EngineOutput | None:
        """End a pooling request once its vector is there."""
        if pooled is None:
            return None
        self._counters.prompt_tokens += request.num_prompt_tokens
        news = self._output(request, [], FinishReason.STOP, pooled=pooled)
        self._finish(request)
        return news

    def _take_tokens(
        self, request: Request, result: RequestStep, prompt_logprobs: list[TokenLogprobs] | None
    ) -> EngineOutput:
        """Append the sampled tokens up to the one that ends the answer."""
        if len(request.token_ids) == request.num_prompt_tokens:
            self._counters.prompt_tokens += request.num_prompt_tokens
        reason, taken = None, 0
        for token_id in result.token_ids:
            reason = request.append(token_id)
            taken += 1
            if reason is not None:
                break
        if taken > 1:  # decode steps on one plan: each token but the last was computed as well
            request.num_computed_tokens += taken - 1
            self.kv.index_pages(request)
        tokens = result.token_ids[:taken]
        if reason is None:
            reason = self._append_forced(request, result, tokens)
        self._counters.generation_tokens += len(tokens)
        logprobs = result.logprobs[:taken] if result.logprobs else None
        news = self._output(request, tokens, reason, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        if reason is not None:
            self._finish(request)
        return news

    def _append_forced(self, request: Request, result: RequestStep, tokens: list[int]) -> FinishReason | None:
        """Append what the grammar leaves no choice about, to be computed like a prompt; says whether the answer ends."""
        for token_id in result.forced_token_ids:
            tokens.append(token_id)
            if (reason := request.append(token_id)) is not None:
                return reason
        return FinishReason.STOP if result.ended else None

    def _new_prompt_logprobs(
        self, request: Request, start: int, entries: list[TokenLogprobs]
    ) -> list[TokenLogprobs] | None:
        """Of the entries for positions start+1.., those that were not sent before a preemption."""
        if not request.wants_prompt_logprobs:
            return None
        fresh = entries[max(0, request.num_prompt_logprobs - start) :]
        request.num_prompt_logprobs += len(fresh)
        return fresh or None

    def _output(
        self,
        request: Request,
        new_token_ids: list[int],
        reason: FinishReason | None,
        *,
        logprobs: list[TokenLogprobs] | None = None,
        prompt_logprobs: list[TokenLogprobs] | None = None,
        error: str | None = None,
        pooled: bytes | None = None,
    ) -> EngineOutput:
        events, request.events = request.events, None
        return EngineOutput(
            request_id=request.request_id,
            new_token_ids=new_token_ids,
            finish_reason=reason,
            stop_reason=None if reason is None else request.stop_reason(reason),
            new_logprobs=logprobs,
            new_prompt_logprobs=prompt_logprobs,
            num_cached_tokens=request.num_cached_tokens or 0,
            error=error,
            events=events,
            pooled=pooled,
        )

    # -- looking in ---------------------------------------------------------------------------------------------------

    def stats(self) -> SchedulerStats:
        """Gauges now, and what was counted since the last call (never negative)."""
        counters, self._counters = self._counters, _Counters()
        return SchedulerStats(
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            kv_usage=self.kv.pool.usage,
            prefix_queries=counters.prefix_queries,
            prefix_hits=counters.prefix_hits,
            num_preemptions=counters.num_preemptions,
            prompt_tokens=counters.prompt_tokens,
            generation_tokens=counters.generation_tokens,
            num_pages=self.kv.pool.num_blocks,
            num_shared_pages=self.kv.pool.num_shared,
        )

    def reset_prefix_cache(self) -> bool:
        """Forget all cached pages; False, and nothing happens, while a request holds pages."""
        return self.kv.reset_prefix_cache()

    def start_over(self) -> None:
        """The executor lost its pages and whom it knew: forget what was computed, and whom it was to release.

        Raises:
            OctavoError: requests are open.
        """
        if self.has_work() or not self.kv.reset_prefix_cache():
            raise OctavoError("start_over() was called while requests are open")
        self._released = []

    def check_integrity(self) -> None:
        """Verify the books.

        Raises:
            IntegrityError: says what is broken. This is a fault of the scheduler, never of a request.
        """
        check_integrity(self.kv, self.running, list(self.waiting))


def _check_limits(scheduler: SchedulerConfig, layout: KVLayout, num_blocks: int) -> None:
    for name in ("max_num_batched_tokens", "max_num_seqs", "max_num_queued_reqs"):
        if getattr(scheduler, name) < 1:
            raise ConfigError(f"{name} must be at least 1, got {getattr(scheduler, name)}", param=name)
    if num_blocks < len(layout.groups):
        raise ConfigError(
            f"the key-value cache has {num_blocks} pages; the model's {len(layout.groups)} page groups need one each",
            param="num_blocks",
        )
