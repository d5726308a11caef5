"""An executor without a model: it writes down what lies in each slot of each page, and looks at it like attention does.

What keys and values of a position are is a function of all tokens up to it (and of the salt, so that sharing across
salts shows). Here it is one number, `chain[position]`. The next token is a function of the last number: whoever got its
pages mixed up, or lost a token in a preemption, reads other numbers or says other tokens than when it runs alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.types.engine import EngineRequest, TokenLogprobs
from octavo.types.kv import KVLayout
from octavo.types.step import NewRequest, RequestStep, StepOutput, StepPlan

VOCABULARY = 24


class SimulationError(AssertionError):
    """The simulator saw something that must not be."""


def require(condition: bool, *message: object) -> None:
    """Raise `SimulationError` unless `condition`; the words of the message are only put together then."""
    if not condition:
        raise SimulationError(" ".join(str(word) for word in message))


def salt_number(salt: str | None) -> int:
    """Where the chain of a salt starts."""
    return 0 if salt is None else 1 + int(salt)


def extend_chain(chain: list[int], start: int, token_ids: Sequence[int]) -> None:
    """Append the numbers of the tokens that `chain` does not have yet."""
    number = chain[-1] if chain else hash((start, -1))
    for token_id in token_ids[len(chain) :]:
        number = hash((number, token_id))
        chain.append(number)


def next_token(number: int, held_back: Sequence[int]) -> int:
    """The token after the one of `number`; of those held back, the next that is not."""
    token_id = number % VOCABULARY
    while token_id in held_back:
        token_id = (token_id + 1) % VOCABULARY
    return token_id


def prompt_logprob(number: int, token_id: int) -> TokenLogprobs:
    """What the model says about a prompt token after the position of `number`."""
    return TokenLogprobs([token_id], [-float(number % 1000)], 1)


@dataclass
class Resident:
    """State of one request in the executor, built from plans only."""

    new: NewRequest
    token_ids: list[int]
    tables: list[list[int]]
    num_computed: int
    chain: list[int]
    start: int


@dataclass
class FakeExecutor:
    """Runs plans. `salts` maps request ids to salts, which plans do not carry."""

    layout: KVLayout
    num_blocks: int
    rng: random.Random
    error_rate: float
    salts: dict[str, str | None]
    residents: dict[str, Resident] = field(default_factory=dict)
    last_step: int = 0

    def __post_init__(self) -> None:
        size = self.layout.block_size
        self.memory: list[list[int | None]] = [[None] * size for _ in range(self.num_blocks + 1)]
        self.group_of = [-1] * (self.num_blocks + 1)

    def execute_model(self, plan: StepPlan) -> StepOutput:
        """Apply a plan, check what attention would see, say the next tokens."""
        require(plan.step_id > self.last_step, "step", plan.step_id, "after step", self.last_step)
        self.last_step = plan.step_id
        self._apply(plan)
        scheduled = [(self._resident(name), count) for name, count in plan.num_scheduled_tokens.items()]
        for resident, count in scheduled:
            self._write(resident, count)
        for resident, count in scheduled:
            self._look(resident, count)
        results = [self._result(*entry) for entry in scheduled]
        self._decode_ahead(plan, [resident for resident, _ in scheduled], results)
        return StepOutput(step_id=plan.step_id, results=results)

    def _decode_ahead(self, plan: StepPlan, residents: list[Resident], results: list[RequestStep]) -> None:
        """Further decode steps on the same plan, some or all of those that it allows: one more token for everybody."""
        if plan.num_steps == 1 or any(result.error for result in results):
            return
        require(set(plan.num_scheduled_tokens.values()) == {1}, "decode steps beside a prefill")
        for _ in range(self.rng.randrange(plan.num_steps)):
            for resident, result in zip(residents, results, strict=True):
                self._write(resident, 1)
                self._look(resident, 1)
                token_id = next_token(resident.chain[-1], ())
                resident.token_ids.append(token_id)
                result.token_ids.append(token_id)

    def _resident(self, request_id: str) -> Resident:
        require(
            request_id in self.residents,
            request_id,
            "is scheduled or released, and the executor never got it",
        )
        return self.residents[request_id]

    def _apply(self, plan: StepPlan) -> None:
        for request_id in plan.released:
            self._resident(request_id)
            del self.residents[request_id]
        for new in plan.new_requests:
            require(new.request_id not in self.residents, new.request_id, "comes a second time")
            require(new.request_id in plan.num_scheduled_tokens, new.request_id, "comes and does not run")
            start = salt_number(self.salts[new.request_id])
            chain: list[int] = []
            extend_chain(chain, start, new.token_ids)
            tables = [list(table) for table in new.block_ids]
            computed = new.num_computed_tokens
            self.residents[new.request_id] = Resident(
                new, list(new.token_ids), tables, computed, chain, start
            )
        for request_id, added in plan.new_block_ids.items():
            require(request_id in plan.num_scheduled_tokens, request_id, "gets pages and does not run")
            for table, pages in zip(self._resident(request_id).tables, added, strict=True):
                require(all(1 <= page <= self.num_blocks for page in pages), request_id, "gets pages", pages)
                table.extend(pages)

    def _write(self, resident: Resident, count: int) -> None:
        size, start = self.layout.block_size, resident.num_computed
        name = resident.new.request_id
        require(count >= 1, name, count, "tokens scheduled")
        require(start + count <= len(resident.token_ids), name, "more tokens scheduled than known")
        extend_chain(resident.chain, resident.start, resident.token_ids)
        for group, table in enumerate(resident.tables):
            require(len(table) * size >= start + count, name, "no page for position", start + count - 1)
            for position in range(start, start + count):
                page = table[position // size]
                require(1 <= page <= self.num_blocks, name, "position", position, "is written to page", page)
                if self.group_of[page] != group:
                    self.group_of[page] = group
                    self.memory[page] = [None] * size
                self.memory[page][position % size] = resident.chain[position]
        resident.num_computed = start + count

    def _look(self, resident: Resident, count: int) -> None:
        """Every position in the windows of this step's tokens must hold what belongs there."""
        size, end = self.layout.block_size, resident.num_computed
        for group, table in enumerate(resident.tables):
            window = self.layout.groups[group].window
            begin = max(0, end - count - window + 1) if window else 0
            for number in range(begin // size, -(-end // size)):
                page, first, last = table[number], max(begin, number * size), min(end, (number + 1) * size)
                offset = number * size
                seen = self.memory[page][first - offset : last - offset]
                if self.group_of[page] != group or seen != resident.chain[first:last]:
                    raise SimulationError(
                        f"{resident.new.request_id}: page {page} of group {group} does not hold positions {first}-{last - 1}"
                    )

    def _result(self, resident: Resident, count: int) -> RequestStep:
        name, end = resident.new.request_id, resident.num_computed
        if self.rng.random() < self.error_rate:
            self._spoil(resident, count)
            return RequestStep(request_id=name, token_ids=[], error="injected")
        logprobs = None
        if resident.new.sampling.prompt_logprobs is not None:
            positions = range(end - count, min(end, resident.new.num_prompt_tokens - 1))
            logprobs = [
                prompt_logprob(resident.chain[p], resident.token_ids[p + 1]) for p in positions
            ] or None
        if end < len(resident.token_ids):
            return RequestStep(request_id=name, token_ids=[], prompt_logprobs=logprobs)
        num_output = len(resident.token_ids) - resident.new.num_prompt_tokens
        held_back = resident.new.stop_token_ids if num_output < resident.new.sampling.min_tokens else ()
        token_id = next_token(resident.chain[-1], held_back)
        resident.token_ids.append(token_id)
        return RequestStep(request_id=name, token_ids=[token_id], prompt_logprobs=logprobs)

    def _spoil(self, resident: Resident, count: int) -> None:
        """What a failed request wrote in this step is worth nothing: whoever is given it will notice."""
        size = self.layout.block_size
        for table in resident.tables:
            for position in range(resident.num_computed - count, resident.num_computed):
                self.memory[table[position // size]][position % size] = None


def run_alone(request: EngineRequest, max_total: int) -> list[int]:
    """The whole answer to a request by itself: no batch, no pages, no preemption. The last token says why it ended."""
    token_ids = list(request.prompt_token_ids)
    answer: list[int] = []
    chain: list[int] = []
    start = salt_number(request.cache_salt)
    while len(token_ids) < max_total:
        extend_chain(chain, start, token_ids)
        held_back = request.stop_token_ids if len(answer) < request.sampling.min_tokens else ()
        token_id = next_token(chain[-1], held_back)
        token_ids.append(token_id)
        answer.append(token_id)
        if token_id in request.stop_token_ids and len(answer) > request.sampling.min_tokens:
            break
    return answer
