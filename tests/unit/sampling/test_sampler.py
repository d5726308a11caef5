"""The sampler against a plain dense restatement of what each parameter means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from octavo.sampling import SampledRow, Sampler, SamplingTable
from octavo.sampling.history import TokenHistory
from octavo.types.sampling_params import SamplingParams

VOCAB = 50


def random_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def sample(
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    *,
    prompt: Sequence[int] = (1, 2, 3),
    output: Sequence[int] = (),
    stop_token_ids: Sequence[int] = (),
) -> list[SampledRow]:
    table = SamplingTable(len(params), VOCAB)
    for slot, one in enumerate(params):
        table.add(slot, f"r{slot}", one, prompt, output, stop_token_ids)
    return Sampler()(logits.clone(), table.batch(np.arange(len(params))))


def tokens(rows: Sequence[SampledRow]) -> list[int]:
    return [row.token_id for row in rows]


def greedy(**rest: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **rest)  # type: ignore[arg-type]


def test_greedy_takes_the_largest_and_the_lowest_id_on_ties() -> None:
    logits = random_logits(4)
    logits[2, [7, 11]] = 40.0
    assert tokens(sample(logits, [greedy()] * 4)) == [
        *logits[:2].argmax(1).tolist(),
        7,
        int(logits[3].argmax()),
    ]


def test_a_greedy_row_is_the_same_beside_a_random_one() -> None:
    logits = random_logits(3)
    mixed = [greedy(), SamplingParams(temperature=1.5, seed=1), greedy()]
    alone = tokens(sample(logits, [greedy()] * 3))
    assert tokens(sample(logits, mixed))[::2] == alone[::2]


@pytest.mark.parametrize("seed", range(5))
def test_a_seeded_row_does_not_depend_on_its_neighbours(seed: int) -> None:  # A42
    logits = random_logits(8, seed)
    params = [
        SamplingParams(temperature=1.0 + row / 4, top_k=row * 3, top_p=0.9, seed=100 + row)
        for row in range(8)
    ]
    alone = [tokens(sample(logits[row : row + 1], [params[row]]))[0] for row in range(8)]
    order = np.random.default_rng(seed).permutation(8)
    shuffled = tokens(sample(logits[torch.from_numpy(order)], [params[row] for row in order]))
    assert shuffled == [alone[row] for row in order]


def test_draws_follow_the_distribution() -> None:
    logits = random_logits(1)
    probabilities = torch.softmax(logits[0] / 1.3, 0)
    count = 4000
    params = [SamplingParams(temperature=1.3, seed=seed) for seed in range(count)]
    drawn = np.bincount(tokens(sample(logits.expand(count, -1), params)), minlength=VOCAB)
    expected = probabilities.numpy() * count
    assert np.abs(drawn - expected).max() < 5 * math.sqrt(count / 4)
    assert (
        (drawn - expected) ** 2 / np.maximum(expected, 1.0)
    ).sum() < 120  # chi square, 49 degrees of freedom


@pytest.mark.parametrize("temperature", [1e-6, 1e-4])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:  # A46
    logits = random_logits(6)
    cold = [SamplingParams(temperature=temperature, seed=seed) for seed in range(6)]
    assert tokens(sample(logits, cold)) == logits.argmax(1).tolist()
    narrow = [SamplingParams(temperature=1.0, top_p=1e-4, seed=seed) for seed in range(6)]
    assert tokens(sample(logits, narrow)) == logits.argmax(1).tolist()


def test_logit_bias() -> None:  # A40
    logits = random_logits(2)
    best = int(logits[0].argmax())
    assert tokens(sample(logits[:1], [greedy(logit_bias={33: 100.0})])) == [33]
    second = int(logits[0].topk(2).indices[1])
    assert tokens(sample(logits, [greedy(logit_bias={best: -100.0}), greedy()])) == [
        second,
        int(logits[1].argmax()),
    ]


def test_min_tokens_holds_back_every_stop_id() -> None:  # A44
    logits = random_logits(1)
    logits[0, [4, 9]] = torch.tensor([60.0, 70.0])
    params = [greedy(min_tokens=2, max_tokens=5, logit_bias={4: 100.0})]
    rest = int(logits[0, :].masked_fill(torch.isin(torch.arange(VOCAB), torch.tensor([4, 9])), -1e9).argmax())
    # An id outside the head (a tokenizer may have more ids than the model) is nothing to hold back.
    assert tokens(sample(logits, params, output=[1], stop_token_ids=[9, 4, VOCAB + 3])) == [rest]
    assert tokens(sample(logits, params, output=[1, 1], stop_token_ids=[9, 4, VOCAB + 3])) == [4]


@pytest.mark.parametrize(
    ("repetition", "frequency", "presence"),
    [(1.7, 0.0, 0.0), (0.6, 0.0, 0.0), (1.0, 0.9, 0.0), (1.3, -0.7, 1.9)],
)
def test_penalties_against_a_dense_restatement(repetition: float, frequency: float, presence: float) -> None:
    logits = random_logits(3, seed=4)
    prompt, output = [5, 6, 6, 7], [7, 8, 8, 8, 49]
    expected = logits.double().clone()
    for token in range(VOCAB):
        column = expected[:, token]
        if token in prompt + output:
            column = torch.where(column > 0, column / repetition, column * repetition)
        expected[:, token] = column - frequency * output.count(token) - presence * (token in output)
    wanted = greedy(repetition_penalty=repetition, frequency_penalty=frequency, presence_penalty=presence)
    table = SamplingTable(3, VOCAB)
    for slot in range(3):
        table.add(slot, "r", wanted if slot != 1 else greedy(), prompt, output, [])
    changed = logits.clone()
    rows = Sampler()(changed, table.batch(np.arange(3)))
    torch.testing.assert_close(changed[::2].double(), expected[::2], rtol=1e-5, atol=1e-5)
    assert torch.equal(changed[1], logits[1])
    assert [row.token_id for row in rows][::2] == expected[::2].argmax(1).tolist()


def test_history_appended_equals_history_given() -> None:
    rng = np.random.default_rng(0)
    prompt, output = rng.integers(0, 40, 30).tolist(), rng.integers(0, 4000, 900).tolist()
    grown = TokenHistory(prompt)
    for token in output:
        grown.extend([token])
    given = TokenHistory(prompt, output)
    assert dict(zip(grown.ids.tolist(), grown.counts.tolist(), strict=True)) == dict(
        zip(given.ids.tolist(), given.counts.tolist(), strict=True)
    )
    assert set(grown.ids.tolist()) == set(prompt + output)
    assert grown.counts.sum() == len(output)


def test_logprobs_are_those_of_the_unchanged_logits() -> None:
    logits = random_logits(3)
    params = [
        greedy(logprobs=3, logit_bias={10: 100.0}),
        greedy(),
        SamplingParams(temperature=0.7, seed=3, logprobs=0, repetition_penalty=1.5),
    ]
    rows = sample(logits, params)
    expected = torch.log_softmax(logits.double(), 1)
    first, third = rows[0].logprobs, rows[2].logprobs
    assert first is not None
    assert third is not None
    assert rows[1].logprobs is None
    assert first.token_ids == [10, *expected[0].topk(3).indices.tolist()]
    assert first.logprobs == pytest.approx([expected[0, token].item() for token in first.token_ids], abs=1e-5)
    assert first.rank == int((expected[0] > expected[0, 10]).sum()) + 1
    assert third.token_ids == [rows[2].token_id]
    assert third.logprobs == pytest.approx([expected[2, rows[2].token_id].item()], abs=1e-5)


def test_all_logprobs() -> None:
    (row,) = sample(random_logits(1), [greedy(logprobs=-1)])
    assert row.logprobs is not None
    assert len(row.logprobs.token_ids) == VOCAB + 1
    assert sorted(row.logprobs.token_ids[1:]) == list(range(VOCAB))


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_broken_row_fails_alone(poison: float) -> None:
    logits = random_logits(3)
    expected = logits.argmax(1).tolist()
    logits[1, 17] = poison
    for params in ([greedy(logprobs=2)] * 3, [greedy(), SamplingParams(seed=1, logprobs=1), greedy()]):
        rows = sample(logits, params)
        assert rows[1].error is not None
        assert rows[1].logprobs is None
        assert [rows[0].token_id, rows[2].token_id] == expected[::2]
        assert rows[0].error is None
        assert rows[2].error is None


def test_minus_infinity_is_a_mask_not_an_error() -> None:
    logits = random_logits(1)
    logits[0, :40] = -math.inf
    (row,) = sample(logits, [SamplingParams(seed=2)])
    assert row.error is None
    assert row.token_id >= 40


def test_without_a_seed_requests_differ() -> None:
    logits = torch.zeros(20, VOCAB)
    drawn = tokens(sample(logits, [SamplingParams(temperature=1.0)] * 20))
    assert len(set(drawn)) > 5
    assert tokens(sample(logits, [SamplingParams(temperature=1.0)] * 20)) == drawn
