"""The runner under random plans: chunks, joins, leaves, preemptions, shared pages, dropped window pages."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from tests.unit.worker.fake_model import (
    LAYOUT,
    VOCAB,
    WINDOW,
    HashModel,
    expected_answer,
    layer_hashes,
    logits_of,
)

from octavo.lib.errors import OctavoError
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import NewRequest, RequestStep, StepPlan
from octavo.worker.model_runner import ModelRunner

GREEDY = SamplingParams(temperature=0.0)
BLOCK = LAYOUT.block_size


@dataclass
class Sequence:
    """A request as a scheduler would track it."""

    request_id: str
    prompt: list[int]
    sampling: SamplingParams = GREEDY
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    blocks: list[list[int]] = field(default_factory=lambda: [[], []])
    results: list[RequestStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = self.tokens or list(self.prompt)

    @property
    def answer(self) -> list[int]:
        return self.tokens[len(self.prompt) :]


class Driver:
    """Plays the scheduler: hands out pages, keeps the books, checks every result it gets."""

    def __init__(self, model: HashModel | None = None, num_blocks: int = 400, max_num_seqs: int = 12) -> None:
        self.model = model or HashModel()
        self.runner = ModelRunner(self.model, LAYOUT, num_blocks, vocab_size=VOCAB, max_num_seqs=max_num_seqs)
        self.free = list(range(1, num_blocks + 1))
        self.known: set[str] = set()
        self.released: list[str] = []
        self.step_id = 0

    def step(self, wanted: dict[str, tuple[Sequence, int]]) -> list[RequestStep]:
        plan = StepPlan(
            step_id=self.step_id,
            released=self.released,
            new_requests=[],
            num_scheduled_tokens={},
            new_block_ids={},
        )
        self.released = []
        self.step_id += 1
        for request_id, (sequence, count) in wanted.items():
            self._schedule(plan, request_id, sequence, count)
        output = self.runner.execute(plan)
        assert output.step_id == plan.step_id
        assert [result.request_id for result in output.results] == list(wanted)
        for result in output.results:
            sequence, count = wanted[result.request_id]
            sequence.computed += count
            reached = sequence.computed == len(sequence.tokens)
            assert len(result.token_ids) == (1 if reached and result.error is None else 0)
            sequence.tokens += result.token_ids
            sequence.results.append(result)
        return output.results

    def run(self, *sequences: Sequence, count: int) -> None:
        """Whole prefill, then decode until each has `count` tokens."""
        while active := [one for one in sequences if len(one.answer) < count]:
            self.step({one.request_id: (one, len(one.tokens) - one.computed) for one in active})

    def release(self, sequence: Sequence) -> None:
        self.released.append(sequence.request_id)
        self.known.discard(sequence.request_id)
        self.free += {block for group in sequence.blocks for block in group if block}
        sequence.blocks, sequence.computed = [[], []], 0

    def _schedule(self, plan: StepPlan, request_id: str, sequence: Sequence, count: int) -> None:
        added: list[list[int]] = []
        for blocks in sequence.blocks:
            pages = -(-(sequence.computed + count) // BLOCK) - len(blocks)
            added.append([self.free.pop(0) for _ in range(pages)])
            blocks += added[-1]
        if request_id not in self.known:
            self.known.add(request_id)
            plan.new_requests.append(
                NewRequest(
                    request_id=request_id,
                    token_ids=list(sequence.tokens),
                    num_prompt_tokens=len(sequence.prompt),
                    num_computed_tokens=sequence.computed,
                    block_ids=[list(blocks) for blocks in sequence.blocks],
                    sampling=sequence.sampling,
                    stop_token_ids=[],
                )
            )
        elif any(added):
            plan.new_block_ids[request_id] = added
        plan.num_scheduled_tokens[request_id] = count


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=length)


@pytest.mark.parametrize("seed", range(6))
def test_random_plans_give_the_solo_answers(seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver()
    alive = [Sequence(f"r{i}", prompt_of(rng.randint(1, 90), 100 * seed + i)) for i in range(8)]
    for number in range(60):
        chosen = rng.sample(alive, rng.randint(0, len(alive)))
        driver.step({one.request_id: (one, rng.randint(1, len(one.tokens) - one.computed)) for one in chosen})
        victim = rng.choice(alive)
        if rng.random() < 0.15:  # preempted: comes back later with all its tokens
            driver.release(victim)
        elif rng.random() < 0.1:
            driver.release(victim)
            alive[alive.index(victim)] = Sequence(f"n{number}", prompt_of(rng.randint(1, 50), number))
        for one in alive:
            assert one.answer == expected_answer(one.prompt, len(one.answer))
    assert sum(len(one.answer) for one in alive) > 20


@pytest.mark.parametrize("chunk", [1, 5, 16, 33, 100])
def test_chunked_prefill_samples_once_at_its_end(chunk: int) -> None:
    driver = Driver()
    sequence = Sequence("a", prompt_of(100))
    while sequence.computed < 100:
        driver.step({"a": (sequence, min(chunk, 100 - sequence.computed))})
    assert sequence.answer == expected_answer(sequence.prompt, 1)
    assert driver.model.logit_rows == [1]  # positions that are not sampled cost no logits


def test_pages_computed_before_are_read_not_written() -> None:
    driver = Driver()
    first = Sequence("a", prompt_of(40))
    driver.run(first, count=3)
    shared = [blocks[:2] for blocks in first.blocks]
    second = Sequence(
        "b", first.prompt[:32] + prompt_of(9, 5), computed=32, blocks=[list(ids) for ids in shared]
    )
    driver.run(second, count=20)
    assert second.answer == expected_answer(second.prompt, 20)
    driver.run(first, count=25)
    assert first.answer == expected_answer(first.prompt, 25)


def test_pages_behind_the_window_may_be_missing() -> None:
    """After a prefix hit a windowed group has null pages where nothing will be read again."""
    driver = Driver()
    first = Sequence("a", prompt_of(70))
    driver.run(first, count=1)
    full, windowed = first.blocks
    assert WINDOW > BLOCK  # two pages back from token 64 are still read
    second = Sequence(
        "b", first.prompt[:64] + prompt_of(5, 1), computed=64, blocks=[full[:4], [0, 0, *windowed[2:4]]]
    )
    driver.run(second, count=5)
    assert second.answer == expected_answer(second.prompt, 5)


@pytest.mark.parametrize("chunk", [1, 7, 64, 150, 200])
def test_prompt_logprobs_whatever_the_chunks(chunk: int) -> None:
    driver = Driver()
    wanted = SamplingParams(temperature=0.0, prompt_logprobs=2)
    one = Sequence("a", prompt_of(200), wanted)
    while one.computed < 200:
        driver.step({"a": (one, min(chunk, 200 - one.computed))})
    driver.run(one, count=3)
    found = [item for result in one.results for item in result.prompt_logprobs or []]
    assert len(found) == 199
    for position, item in enumerate(found, start=1):
        expected = torch.log_softmax(
            logits_of(torch.tensor([layer_hashes(one.prompt[:position])]))[0].double(), 0
        )
        assert item.token_ids == [one.prompt[position], *expected.topk(2).indices.tolist()]
        assert item.logprobs == pytest.approx([expected[token].item() for token in item.token_ids], abs=1e-5)
    assert max(driver.model.logit_rows) <= 64


def test_prompt_of_one_token_has_no_prompt_logprobs() -> None:
    driver = Driver()
    one = Sequence("a", [3], SamplingParams(temperature=0.0, prompt_logprobs=0))
    driver.run(one, count=2)
    assert [result.prompt_logprobs for result in one.results] == [[], []]


def test_logprobs_come_with_the_tokens() -> None:
    driver = Driver()
    with_logprobs = Sequence("a", prompt_of(5), SamplingParams(temperature=0.0, logprobs=1))
    plain = Sequence("b", prompt_of(6))
    driver.run(with_logprobs, plain, count=4)
    for result, token in zip(with_logprobs.results, with_logprobs.answer, strict=True):
        assert result.logprobs is not None
        assert result.logprobs[0].token_ids == [token, token]
        assert result.logprobs[0].rank == 1
    assert all(result.logprobs is None for result in plain.results)


def test_nan_fails_only_its_own_request() -> None:
    driver = Driver(HashModel(poison=60))
    good, bad = Sequence("good", [1, 2, 3]), Sequence("bad", [4, 60])
    prompt_bad = Sequence("prompt", [60, 5, 6], SamplingParams(temperature=0.0, prompt_logprobs=1))
    results = driver.step({one.request_id: (one, len(one.tokens)) for one in (bad, good, prompt_bad)})
    assert results[0].error is not None
    assert "not finite" in results[0].error
    assert results[1].error is None
    assert results[2].error is not None
    driver.release(bad)
    driver.release(prompt_bad)
    driver.run(good, count=6)
    assert good.answer == expected_answer(good.prompt, 6)


def test_seeded_answers_survive_neighbours_preemption_and_restart() -> None:  # A42
    seeded = SamplingParams(
        temperature=1.0, top_p=0.95, seed=7, repetition_penalty=1.2, frequency_penalty=0.3
    )
    solo = Sequence("s", prompt_of(30), seeded)
    Driver().run(solo, count=24)

    driver = Driver()
    others = [
        Sequence(f"o{i}", prompt_of(10 + i, i), SamplingParams(temperature=1.5, seed=i)) for i in range(7)
    ]
    crowd = Sequence("c", prompt_of(30), seeded)
    driver.run(*others[:3], crowd, *others[3:], count=9)
    driver.release(crowd)
    driver.run(*others, count=11)
    driver.run(others[0], crowd, count=24)
    assert crowd.answer == solo.answer

    restarted = Sequence("r", prompt_of(30), seeded, tokens=solo.tokens[:41])
    Driver().run(restarted, count=24)
    assert restarted.answer == solo.answer


def test_many_rows_are_sampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.worker.model_runner.MAX_LOGITS_BYTES", 5 * 4 * VOCAB)
    driver = Driver()
    crowd = [Sequence(f"r{i}", prompt_of(4 + i, i)) for i in range(12)]
    driver.run(*crowd, count=3)
    assert set(driver.model.logit_rows) == {5, 2}
    assert [one.answer for one in crowd] == [expected_answer(one.prompt, 3) for one in crowd]


def test_a_long_request_grows_the_tables() -> None:
    driver = Driver()
    long, short = Sequence("l", prompt_of(300)), Sequence("s", prompt_of(3))
    driver.run(short, count=2)
    driver.run(long, short, count=3)
    assert long.answer == expected_answer(long.prompt, 3)
    assert short.answer == expected_answer(short.prompt, 3)


def test_a_wrong_plan_is_named() -> None:
    driver = Driver()
    one = Sequence("a", prompt_of(5))
    with pytest.raises(OctavoError, match=r"runs request 'a' up to token 6, but 5 tokens are known"):
        driver.step({"a": (one, 6)})
    plan = StepPlan(step_id=0, released=[], new_requests=[], num_scheduled_tokens={"x": 1}, new_block_ids={})
    with pytest.raises(OctavoError, match="'x', which is not in the batch"):
        driver.runner.execute(plan)


def test_a_full_batch_is_refused_and_slots_come_back() -> None:
    driver = Driver(max_num_seqs=2)
    first, second, third = (Sequence(name, prompt_of(4)) for name in "abc")
    driver.run(first, second, count=1)
    with pytest.raises(OctavoError, match="the batch is full"):
        driver.step({"c": (third, 4)})
    fresh = Driver(max_num_seqs=2)
    for number in range(5):
        one = Sequence(f"r{number}", prompt_of(4))
        fresh.run(one, count=1)
        fresh.release(one)


def test_releasing_an_unknown_request_is_harmless() -> None:
    plan = StepPlan(step_id=4, released=["never"], new_requests=[], num_scheduled_tokens={}, new_block_ids={})
    assert Driver().runner.execute(plan).results == []


def test_preparing_32_decodes_is_quick() -> None:
    driver = Driver(max_num_seqs=32)
    crowd = [Sequence(f"r{i}", prompt_of(20 + i % 8, i)) for i in range(32)]
    driver.run(*crowd, count=1)
    plan = StepPlan(
        step_id=0,
        released=[],
        new_requests=[],
        num_scheduled_tokens={one.request_id: 1 for one in crowd},
        new_block_ids={},
    )
    batch = driver.runner.batch
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        step = batch.prepare(plan)
        batch.sampling.batch(step.slots)
        seconds.append(time.perf_counter() - begin)
    assert np.min(seconds) < 1e-3  # about 0.1 ms on an idle machine
