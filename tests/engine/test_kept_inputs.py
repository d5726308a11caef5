"""What decode steps keep from one to the next equals what is built afresh, whoever joins, leaves, is preempted or changes slots."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.engine.stepping import Stepper, load, write_config
from tests.engine.test_bits import TINY

from octavo.models.decoder import Decoder
from octavo.ops.decode import DrawInputs
from octavo.sampling import SamplingTable
from octavo.sampling.philox import UniformTable
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import StepPlan
from octavo.worker import input_batch, model_runner
from octavo.worker.input_batch import InputBatch, PreparedStep


class CheckedBatch(InputBatch):
    """Compares each step that was kept with one made anew."""

    num_kept = num_fresh = 0

    def prepare(self, plan: StepPlan) -> PreparedStep:
        kept = self._next_step
        step = super().prepare(plan)
        # Arrays of a step that got pages are the kept ones too.
        is_kept = kept is not None and step.token_ids is kept.token_ids
        CheckedBatch.num_fresh += not is_kept
        if is_kept:
            CheckedBatch.num_kept += 1
            same_steps(step, self._prepare(plan, list(plan.num_scheduled_tokens)))
        return step


class CheckedTable(SamplingTable):
    """Compares draw inputs that were kept with ones made anew, and the uniforms with each request's own."""

    num_kept = 0
    slots_of: dict[str, set[int]]
    seeds: dict[int, int]

    def __init__(self, num_slots: int, vocab_size: int, *, has_processors: bool = False) -> None:
        super().__init__(num_slots, vocab_size, has_processors=has_processors)
        CheckedTable.slots_of, self.seeds = {}, {}

    def add(self, slot: int, request_id: str, params: SamplingParams, *tokens: list[int]) -> None:  # type: ignore[override]
        super().add(slot, request_id, params, *tokens)
        CheckedTable.slots_of.setdefault(request_id, set()).add(slot)
        self.seeds[slot] = params.seed or 0

    def draw(self, slots: NDArray[np.int64]) -> DrawInputs | None:
        before = None if self._drawn is None else self._drawn[1]
        found = super().draw(slots)
        if found is not None:
            CheckedTable.num_kept += found is before
            fresh = self._make_draw(slots.copy())
            assert fresh is not None
            for one in fields(DrawInputs):
                assert torch.equal(getattr(found, one.name), getattr(fresh, one.name)), one.name
        return found

    def uniforms(self, slots: NDArray[np.int64], steps: int) -> torch.Tensor:
        found = super().uniforms(slots, steps)
        for column, slot in enumerate(slots.tolist()):
            alone = UniformTable(1)
            alone.set_seed(0, self.seeds[slot])
            first = int(self._num_output[slot])
            own = [float(alone.at(np.array([0]), np.array([first + step]))[0]) for step in range(steps)]
            if self._temperature[slot]:
                assert found[:, column].tolist() == own
        return found


def same_steps(kept: PreparedStep, fresh: PreparedStep) -> None:
    assert kept.request_ids == fresh.request_ids
    for name in ("slots", "start", "query_start", "sampled", "room"):
        assert np.array_equal(getattr(kept, name), getattr(fresh, name)), name
    assert torch.equal(kept.token_ids, fresh.token_ids)
    assert torch.equal(kept.positions, fresh.positions)
    assert torch.equal(kept.attention.query_start, fresh.attention.query_start)
    assert torch.equal(kept.attention.seq_lens, fresh.attention.seq_lens)
    for before, now in zip(kept.attention.groups, fresh.attention.groups, strict=True):
        assert torch.equal(before.slot_mapping, now.slot_mapping)
        assert torch.equal(before.block_table, now.block_table)


@pytest.fixture(scope="module", params=["llama-bf16", "gemma3-bf16"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load(write_config(tmp_path_factory.mktemp("model"), TINY[request.param]), "dummy")


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_runner, "InputBatch", CheckedBatch)
    monkeypatch.setattr(input_batch, "SamplingTable", CheckedTable)
    CheckedBatch.num_kept = CheckedBatch.num_fresh = CheckedTable.num_kept = 0


def params_of(number: int) -> SamplingParams:
    """Greedy and random in turns, some with log probabilities, penalties or prompt log probabilities now and then."""
    rest = {3: {"logprobs": 1}, 6: {"repetition_penalty": 1.3}, 9: {"prompt_logprobs": 1}}.get(
        number % 12, {}
    )
    return SamplingParams(
        temperature=0.9 * (number % 2), seed=number, top_k=30, max_tokens=20 + 7 * (number % 9), **rest
    )


@pytest.mark.parametrize("max_decode_steps", [1, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_joins_leaves_and_preemptions(model: Decoder, seed: int, max_decode_steps: int) -> None:
    rng = random.Random(seed)
    pages = Stepper(model).scheduler.kv.pages_for
    stepper = Stepper(
        model, recorded=True, max_decode_steps=max_decode_steps, max_num_seqs=6, num_blocks=2 * pages(110)
    )
    prompts = {f"r{i}": [rng.randrange(300) for _ in range(rng.randint(1, 50))] for i in range(24)}
    numbers = {name: number for number, name in enumerate(prompts)}
    coming = list(prompts)
    while coming or stepper.scheduler.has_work():
        if coming and rng.random() < 0.1:
            name = coming.pop(0)
            stepper.add(name, prompts[name], params_of(numbers[name]), [rng.randrange(300)])
        if rng.random() < 0.02 and stepper.answers:
            stepper.abort(rng.choice(list(stepper.answers)))
        if stepper.scheduler.has_work():
            stepper.step()
    assert min(CheckedBatch.num_kept, CheckedBatch.num_fresh) > 20
    assert CheckedTable.num_kept > 20


def test_a_preempted_request_comes_back_in_another_slot(model: Decoder) -> None:
    pages = Stepper(model).scheduler.kv.pages_for
    prompts = [[(11 * number + 5 * i) % 300 for i in range(30)] for number in range(4)]

    def run(num_blocks: int) -> tuple[dict[str, list[int]], Stepper]:
        stepper = Stepper(model, recorded=True, num_blocks=num_blocks)
        for number, prompt in enumerate(prompts):
            params = SamplingParams(temperature=number % 2, seed=number, max_tokens=60 + number)
            stepper.add(f"r{number}", prompt, params)
        return {name: answer.token_ids for name, answer in stepper.run().items()}, stepper

    alone, _ = run(512)
    crowded, stepper = run(2 * pages(80))
    assert stepper.num_preemptions
    assert max(map(len, CheckedTable.slots_of.values())) > 1
    assert crowded == alone
    assert CheckedBatch.num_kept > 20


@pytest.mark.parametrize("max_decode_steps", [1, 5])
def test_who_got_no_page_waits_and_nobody_fails(model: Decoder, max_decode_steps: int) -> None:
    """Both want a page in the same step, one is left, and the table of the other is exactly as wide as what it has."""
    long = [7] * (16 * 16 - 10)
    needed = Stepper(model).scheduler.kv.pages_for(16 * 16 + 16)
    for spare in range(4):
        stepper = Stepper(
            model, recorded=True, num_blocks=needed + 1 + spare, max_decode_steps=max_decode_steps
        )
        for name, prompt in {"short": [5] * 6, "long": long}.items():
            stepper.add(name, prompt, SamplingParams(temperature=0, max_tokens=25, ignore_eos=True))
        assert [len(answer.token_ids) for answer in stepper.run().values()] == [25, 25]


def test_the_next_step_of_a_subset_and_of_another_order_is_made_anew(model: Decoder) -> None:
    stepper = Stepper(model, recorded=True)
    for name in "abc":
        stepper.add(name, [5, 6, ord(name)], SamplingParams(temperature=0, max_tokens=50))
    for _ in range(4):
        stepper.step()
    kept = CheckedBatch.num_kept
    assert kept == 2  # the first step is a prefill, the second has nothing kept before it

    def plan(*names: str) -> StepPlan:
        return StepPlan(
            step_id=0,
            released=[],
            new_requests=[],
            num_scheduled_tokens=dict.fromkeys(names, 1),
            new_block_ids={},
        )

    for names in ("ab", "cba", "abc", "c"):
        results = stepper.runner.execute(plan(*names)).results
        assert [result.request_id for result in results] == list(names)
    assert CheckedBatch.num_kept == kept
    stepper.runner.execute(plan("c"))
    assert CheckedBatch.num_kept == kept + 1
