"""Flat log probabilities read like the list of dictionaries that they stand for."""

from __future__ import annotations

import random

from tests.engine.fakes import FakeExecutor, fake_config, fake_core, fake_tokenizer

from octavo import FlatLogprobs, LLMEngine, Logprob, SamplingParams
from octavo.engine.clients.inproc import InprocClient
from octavo.types.outputs import PositionLogprobs, RequestOutput


def random_positions(count: int, seed: int) -> list[PositionLogprobs]:
    rng = random.Random(seed)
    return [
        {
            token: Logprob(-rng.random(), token + 1, str(token))
            for token in rng.sample(range(50), rng.randint(0, 4))
        }
        for _ in range(count)
    ]


def flat_of(positions: list[PositionLogprobs]) -> FlatLogprobs:
    flat = FlatLogprobs()
    for position in positions:
        flat.append(position)
    return flat


def test_it_reads_like_a_list() -> None:
    positions, more = random_positions(20, 0), random_positions(5, 1)
    flat = flat_of(positions)
    assert list(flat) == positions
    assert (len(flat), flat[-1], flat[3]) == (20, positions[-1], positions[3])
    for part in (slice(2, 9), slice(None), slice(-3, None), slice(9, 2), slice(0, 20, 3)):
        assert list(flat[part]) == positions[part]
    assert list(flat + flat_of(more)) == positions + more
    assert flat == flat_of(positions)
    assert flat != flat_of(more)
    assert flat != positions


def answer(**params: object) -> RequestOutput:
    config = fake_config()
    engine = LLMEngine(config, InprocClient(fake_core(config, FakeExecutor())), fake_tokenizer())
    engine.add_request(
        "r", "hello", SamplingParams(temperature=0, max_tokens=6, logprobs=2, prompt_logprobs=1, **params)
    )  # type: ignore[arg-type]
    outputs: list[RequestOutput] = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs[-1]


def test_an_answer_holds_the_same_either_way() -> None:
    flat, plain = answer(flat_logprobs=True), answer()
    assert isinstance(flat.outputs[0].logprobs, FlatLogprobs)
    assert isinstance(flat.prompt_logprobs, FlatLogprobs)
    assert list(flat.outputs[0].logprobs) == plain.outputs[0].logprobs
    assert [position or None for position in flat.prompt_logprobs] == plain.prompt_logprobs
