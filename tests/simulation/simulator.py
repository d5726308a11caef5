"""Drives a scheduler with random requests and checks everything that can be checked, after every step."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from octavo.lib.errors import InvalidRequestError, OverloadedError
from octavo.scheduling.request import Request
from octavo.scheduling.scheduler import Scheduler
from octavo.types.engine import EngineOutput, EngineRequest, FinishReason, TokenLogprobs
from octavo.types.step import StepPlan
from tests.simulation.fake_executor import (
    FakeExecutor,
    extend_chain,
    prompt_logprob,
    require,
    run_alone,
    salt_number,
)
from tests.simulation.scenario import RequestSource, Scenario, random_scenario

_COUNTERS = ("prefix_queries", "prefix_hits", "num_preemptions", "prompt_tokens", "generation_tokens")


@dataclass
class Stream:
    """What the client of one request has got, and what it should get."""

    request: EngineRequest
    expected: list[int]
    max_total: int
    tokens: list[int] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_cached_tokens: int | None = None
    outputs: int = 0
    """Since the engine started."""


class Simulation:
    """One scheduler and its executor under random load.

    Raises:
        SimulationError: something that must not be, was.
        IntegrityError: the scheduler's own check failed.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = random.Random(scenario.seed + 1)
        self.source = RequestSource(scenario, self.rng)
        self.streams: dict[str, Stream] = {}
        self.arrivals: dict[str, int] = {}
        self.salts: dict[str, str | None] = {}
        self.max_kv_tokens = scenario.max_kv_tokens
        self.seen: Counter[str] = Counter()
        self.now = 0.0
        self._start_engine()

    def run(self, num_steps: int) -> None:
        """Random load for `num_steps` steps, then no more arrivals until all is done."""
        for _ in range(num_steps):
            self._disturb()
            self._step()
        self._drain()

    # -- load ---------------------------------------------------------------------------------------------------------

    def _start_engine(self) -> None:
        scenario = self.scenario
        self.scheduler = Scheduler(
            scenario.scheduler,
            scenario.cache,
            scenario.layout,
            scenario.num_blocks,
            scenario.max_model_len,
            clock=lambda: self.now,
        )
        self.executor = FakeExecutor(
            scenario.layout, scenario.num_blocks, self.rng, scenario.error_rate, self.salts
        )
        self.totals: dict[str, int] = dict.fromkeys(_COUNTERS, 0)
        self.emitted = {"prompt_tokens": 0, "generation_tokens": 0}

    def _disturb(self) -> None:
        is_full = len(self.scheduler.waiting) >= self.scenario.scheduler.max_num_queued_reqs
        if not self.streams or self.rng.random() < self.scenario.arrival_rate * (0.1 if is_full else 1):
            for _ in range(self.rng.choice([1, 1, 1, 4])):
                self._arrive(self.source.make())
        if self.streams and self.rng.random() < self.scenario.abort_rate:
            self._abort()
        if self.rng.random() < self.scenario.restart_rate:
            self._restart()
        if self.rng.random() < 0.01:
            used = any(request.pages for request in self.scheduler.running)
            require(self.scheduler.reset_prefix_cache() == (not used), "reset_prefix_cache lies")

    def _arrive(self, request: EngineRequest) -> None:
        refusal = self._refusal(request)
        waiting = len(self.scheduler.waiting)
        try:
            self.scheduler.add(request)
        except InvalidRequestError as error:
            self.seen["refusals"] += 1
            require(refusal, request.request_id, "was refused:", error)
        except OverloadedError as error:
            self.seen["overloads"] += 1
            require(not refusal, request.request_id, "should have been refused, not put off")
            require(
                waiting >= self.scenario.scheduler.max_num_queued_reqs, "overloaded with", waiting, "waiting"
            )
            require(1 <= error.retry_after <= 60, "retry_after", error.retry_after)
        else:
            require(not refusal, request.request_id, "can never run and was taken")
            max_total = self._max_total(request)
            self.salts[request.request_id] = request.cache_salt
            self.arrivals[request.request_id] = len(self.arrivals)
            self.streams[request.request_id] = Stream(request, run_alone(request, max_total), max_total)

    def _refusal(self, request: EngineRequest) -> bool:
        prompt, max_tokens = len(request.prompt_token_ids), request.sampling.max_tokens
        config = self.scenario.scheduler
        asked = min(prompt + (max_tokens or 1), self.scenario.max_model_len)
        too_long = prompt + 1 > self.scenario.max_model_len or asked - 1 > self.max_kv_tokens
        return (
            not prompt
            or too_long
            or (not config.enable_chunked_prefill and prompt > config.max_num_batched_tokens)
        )

    def _max_total(self, request: EngineRequest) -> int:
        limit = self.scenario.max_model_len
        if request.sampling.max_tokens is None:
            return min(limit, self.max_kv_tokens + 1)
        return min(limit, len(request.prompt_token_ids) + request.sampling.max_tokens)

    def _abort(self) -> None:
        names = self.rng.sample(list(self.streams), min(len(self.streams), self.rng.choice([1, 1, 3])))
        outputs = self.scheduler.abort([*names, "unknown", names[0]])
        require(
            sorted(output.request_id for output in outputs) == sorted(names),
            "abort answered for the wrong ids",
        )
        for output in outputs:
            require(output.finish_reason is FinishReason.ABORT, output.request_id, "was aborted, not", output)
            del self.streams[output.request_id]
            self.seen["aborts"] += 1
        self.scheduler.check_integrity()

    def _restart(self) -> None:
        """The engine died: a new one continues all streams from what their clients have."""
        streams, self.streams = self.streams, {}
        self.seen["restarts"] += 1
        self._start_engine()
        for name, stream in streams.items():
            if not self.scenario.scheduler.enable_chunked_prefill and stream.tokens:
                continue  # may be too long by now to be taken in one step
            request = stream.request
            continued = EngineRequest(
                request_id=name,
                prompt_token_ids=request.prompt_token_ids,
                sampling=request.sampling,
                stop_token_ids=request.stop_token_ids,
                eos_token_ids=request.eos_token_ids,
                priority=request.priority,
                cache_salt=request.cache_salt,
                output_token_ids=stream.tokens,
            )
            try:
                self.scheduler.add(continued)
            except OverloadedError:
                continue
            stream.num_cached_tokens, stream.outputs = None, 0
            if not stream.tokens:
                stream.prompt_logprobs = []
            self.streams[name] = stream

    # -- one step -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.seen["steps"] += 1
        self.now += 0.01
        had_work = self.scheduler.has_work()
        require(
            had_work == bool(self.streams), "has_work is", had_work, "with", len(self.streams), "open streams"
        )
        plan = self.scheduler.schedule(self.rng.choice(self.scenario.decode_steps))
        self.seen["steps ahead"] += plan.num_steps - 1
        require((plan.total_tokens > 0) == had_work, plan.total_tokens, "tokens planned, work:", had_work)
        self._check_plan(plan)
        output = self.executor.execute_model(plan)
        if self.rng.random() < self.scenario.abort_rate / 4 and self.streams:
            self._abort()  # while the step is in flight
        for news in self.scheduler.update(plan, output):
            self._deliver(news)
        self.scheduler.check_integrity()
        self._check_stats()

    def _drain(self) -> None:
        """The best-ranked request advances in each step, so that the rest takes about as many steps as it has tokens at most."""
        bound = 2 * sum(stream.max_total for stream in self.streams.values())
        while self.streams:
            require(bound > 0, "starvation:", sorted(self.streams), "do not finish")
            bound -= 1
            self._step()
        require(self.scheduler.kv.pool.num_free == self.scenario.num_blocks, "pages are lost when idle")
        require(not self.scheduler.requests and not self.scheduler.running, "requests are left when idle")
        require(len(self.scheduler.waiting) == 0, "requests wait when idle")

    # -- what a plan must keep to -------------------------------------------------------------------------------------

    def _check_plan(self, plan: StepPlan) -> None:
        config, scheduler, counts = self.scenario.scheduler, self.scheduler, plan.num_scheduled_tokens
        require(
            plan.total_tokens <= config.max_num_batched_tokens,
            plan.total_tokens,
            "tokens exceed the budget",
        )
        require(len(scheduler.running) <= config.max_num_seqs, len(scheduler.running), "requests run")
        running = {request.request_id: request for request in scheduler.running}
        require(counts.keys() <= running.keys(), "a request is scheduled that does not run")
        for new in plan.new_requests:
            stream = self.streams[new.request_id]
            known = stream.request.prompt_token_ids + stream.tokens
            require(new.token_ids == known, new.request_id, "comes in with tokens lost or added")
            require(new.num_computed_tokens < len(known), new.request_id, "nothing is left to compute")
        if scheduler.running:
            self._check_order(plan)
        for request in scheduler.running:
            if request.request_id not in counts:
                self._check_left_out(request, plan)
        if config.enable_chunked_prefill:
            self._check_decode_wait(plan, running)
            self._check_idle_room(plan)

    def _check_order(self, plan: StepPlan) -> None:
        """The best-ranked request advances; under FCFS nobody is admitted before one who came first."""
        is_priority = self.scenario.scheduler.policy == "priority"
        running = self.scheduler.running
        best = min(running, key=lambda r: (r.priority if is_priority else 0, self.arrivals[r.request_id]))
        require(
            best.request_id in plan.num_scheduled_tokens,
            best.request_id,
            "ranks first and does not advance",
        )
        if is_priority or not plan.new_requests:
            return
        newest = max(self.arrivals[new.request_id] for new in plan.new_requests)
        for request in self.scheduler.waiting:
            passed = self.arrivals[request.request_id] < newest and not self._is_put_off(request)
            require(not passed, request.request_id, "waits, and a later one is admitted")

    def _is_put_off(self, waiting: Request) -> bool:
        """Whether a running request is just computing a full page that the waiting one starts with, too."""
        size = self.scenario.layout.block_size
        salts, name = self.salts, waiting.request_id
        for other in self.scheduler.running:
            pairs = zip(waiting.token_ids, other.token_ids, strict=False)
            common = next(
                (n for n, (a, b) in enumerate(pairs) if a != b),
                min(len(waiting.token_ids), len(other.token_ids)),
            )
            if salts[other.request_id] == salts[name] and common // size > other.num_computed_tokens // size:
                return True
        return False

    def _check_left_out(self, request: Request, plan: StepPlan) -> None:
        if not self.scenario.scheduler.enable_chunked_prefill:
            return
        has_page = request.num_computed_tokens < request.capacity
        no_page = not has_page and self.scheduler.kv.pool.num_free < len(self.scenario.layout.groups)
        # A later one's window may have moved on in the same step and given pages back.
        too_late = any(group.window for group in self.scenario.layout.groups) and bool(plan.new_block_ids)
        no_budget = plan.total_tokens == self.scenario.scheduler.max_num_batched_tokens
        require(
            no_page or no_budget or too_late,
            request.request_id,
            "runs and got nothing, with pages and budget left",
        )

    def _check_decode_wait(self, plan: StepPlan, running: dict[str, Request]) -> None:
        threshold = self.scenario.scheduler.long_prefill_token_threshold
        counts = plan.num_scheduled_tokens
        decoding = any(
            counts[n] == 1 and running[n].num_remaining_tokens == 1 and self._decodes(n, plan) for n in counts
        )
        if threshold and decoding:
            require(
                max(counts.values()) <= max(1, threshold),
                "a decode waits for",
                max(counts.values()),
                "tokens",
            )

    def _decodes(self, name: str, plan: StepPlan) -> bool:
        return all(new.request_id != name for new in plan.new_requests)

    def _check_idle_room(self, plan: StepPlan) -> None:
        """Nobody waits when there is a seat, budget, and room for all its tokens."""
        scheduler, config = self.scheduler, self.scenario.scheduler
        seats = min(config.max_num_seqs, config.max_num_batched_tokens)
        if not len(scheduler.waiting) or len(scheduler.running) >= seats:
            return
        if plan.total_tokens >= config.max_num_batched_tokens:
            return
        size, groups = self.scenario.layout.block_size, len(self.scenario.layout.groups)
        need = -(-len(scheduler.waiting[0].token_ids) // size) * groups + len(scheduler.running)
        excused = any(r.num_cached_tokens is not None or self._is_put_off(r) for r in scheduler.waiting)
        require(
            excused or scheduler.kv.pool.num_free < need,
            scheduler.waiting[0].request_id,
            "waits for nothing",
        )

    # -- what clients must get ----------------------------------------------------------------------------------------

    def _deliver(self, news: EngineOutput) -> None:
        name = news.request_id
        require(name in self.streams, name, "is over and gets more")
        stream = self.streams[name]
        self._check_first_output(stream, news)
        if not stream.tokens and news.new_token_ids:
            self.emitted["prompt_tokens"] += len(stream.request.prompt_token_ids)
        stream.tokens += news.new_token_ids
        stream.prompt_logprobs += news.new_prompt_logprobs or []
        self.emitted["generation_tokens"] += len(news.new_token_ids)
        got = len(stream.tokens)
        require(stream.tokens == stream.expected[:got], name, "says other tokens than alone")
        if news.finish_reason is FinishReason.ERROR:
            require(news.error == "injected", name, "failed")
            self.seen["errors"] += 1
        else:
            require((news.finish_reason is not None) == (got == len(stream.expected)), name, "ends wrongly")
            require(bool(news.new_token_ids or news.new_prompt_logprobs), name, "gets empty news")
        if news.new_token_ids:
            self._check_prompt_logprobs(stream)
        if news.finish_reason is not None:
            self._check_finish(stream, news)
            self.seen["finished"] += 1
            del self.streams[name]

    def _check_first_output(self, stream: Stream, news: EngineOutput) -> None:
        name = news.request_id
        if stream.outputs == 0:
            require(
                news.events is not None and news.events.keys() == {"queued", "scheduled"},
                name,
                "has no events",
            )
            stream.num_cached_tokens = news.num_cached_tokens
            known = len(stream.request.prompt_token_ids) + len(stream.tokens)
            require(0 <= news.num_cached_tokens < known, name, "has too many tokens cached")
        else:
            require(news.events is None, name, "gets events twice")
        require(news.num_cached_tokens == stream.num_cached_tokens, name, "changes num_cached_tokens")
        stream.outputs += 1

    def _check_prompt_logprobs(self, stream: Stream) -> None:
        prompt, name = stream.request.prompt_token_ids, stream.request.request_id
        if stream.request.sampling.prompt_logprobs is None:
            require(not stream.prompt_logprobs, name, "gets prompt log probabilities unasked")
        elif len(stream.tokens) == 1:
            chain: list[int] = []
            extend_chain(chain, salt_number(stream.request.cache_salt), prompt)
            expected = [
                prompt_logprob(number, token) for number, token in zip(chain, prompt[1:], strict=False)
            ]
            require(stream.prompt_logprobs == expected, name, "gets wrong prompt log probabilities")
        else:
            require(
                len(stream.prompt_logprobs) == len(prompt) - 1, name, "gets prompt log probabilities again"
            )

    def _check_finish(self, stream: Stream, news: EngineOutput) -> None:
        if news.finish_reason is FinishReason.ERROR:
            return
        request, name = stream.request, news.request_id
        last = stream.tokens[-1]
        stopped = last in request.stop_token_ids and len(stream.tokens) > request.sampling.min_tokens
        require(
            news.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH),
            name,
            "wrong reason",
        )
        own = stopped and last not in request.eos_token_ids
        require(news.stop_reason == (last if own else None), name, "stop_reason", news.stop_reason)

    def _check_stats(self) -> None:
        stats = self.scheduler.stats()
        for name in (
            "prefix_queries",
            "prefix_hits",
            "num_preemptions",
            "prompt_tokens",
            "generation_tokens",
        ):
            increment = getattr(stats, name)
            require(increment >= 0, "counter", name, "fell by", -increment)
            self.totals[name] += increment
            self.seen[name] += increment
        for name, total in self.emitted.items():
            require(self.totals[name] == total, name, "says", self.totals[name], ", clients got", total)
        require(self.totals["prefix_hits"] <= self.totals["prefix_queries"], "more prefix hits than queries")
        require(stats.num_running + stats.num_waiting == len(self.streams), "the gauges lose requests")


def simulate(seed: int, num_steps: int) -> Simulation:
    """Run one random scenario to its end."""
    simulation = Simulation(random_scenario(seed))
    simulation.run(num_steps)
    return simulation
