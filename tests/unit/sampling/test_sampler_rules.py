"""What a request may rule out, force and have shown, through the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from octavo import ops
from octavo.sampling import SampledRow, Sampler, SamplingTable
from octavo.types.engine import TokenRules
from octavo.types.sampling_params import SamplingParams

VOCAB = 50


def random_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def sample(
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    *,
    rules: TokenRules = TokenRules(),  # noqa: B008 - frozen
    output: Sequence[int] = (),
    mode: str = "raw_logprobs",
) -> list[SampledRow]:
    table = SamplingTable(len(params), VOCAB)
    for slot, one in enumerate(params):
        table.add(slot, f"r{slot}", one, [1, 2], output, [], rules)
    return Sampler(mode)(logits.clone(), table.batch(np.arange(len(params))))


def greedy(**rest: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, **rest)


@pytest.mark.parametrize("twin", [False, True])
def test_only_allowed_tokens_come_and_neighbours_are_untouched(twin: bool) -> None:
    logits = random_logits(3)
    allowed = [5, 17, 17, 49]
    params = [SamplingParams(temperature=5.0, seed=1), greedy(allowed_token_ids=allowed), greedy()]
    if twin:
        with ops.reference_mode():
            rows = sample(logits, params)
    else:
        rows = sample(logits, params)
    plain = sample(logits, [params[0], greedy(), greedy()])
    assert rows[1].token_id == max(allowed, key=lambda token: float(logits[1, token]))
    assert [rows[0].token_id, rows[2].token_id] == [plain[0].token_id, plain[2].token_id]
    many = [SamplingParams(temperature=50.0, seed=seed, allowed_token_ids=allowed) for seed in range(60)]
    assert {row.token_id for row in sample(logits[:1].repeat(60, 1), many)} == set(allowed)


def test_a_bias_cannot_bring_back_what_is_not_allowed() -> None:
    (row,) = sample(random_logits(1), [greedy(allowed_token_ids=[3], logit_bias={9: 100.0})])
    assert row.token_id == 3


def test_bad_words_are_held_back_where_they_would_be_said() -> None:
    logits = random_logits(1)
    best, second, third = logits[0].topk(3).indices.tolist()
    rules = TokenRules(bad_words=[[best], [7, second]])
    asked = greedy(bad_words=["x"])
    assert sample(logits, [asked], rules=rules)[0].token_id == second
    assert sample(logits, [asked], rules=rules, output=[7])[0].token_id == third
    assert sample(logits, [asked], rules=rules, output=[7, 8])[0].token_id == second


def test_the_end_of_reasoning_comes_when_its_budget_is_spent() -> None:
    rules = TokenRules(thinking_start=[1, 2], thinking_end=[3, 4])
    logits = random_logits(1)
    logits[0, [3, 4]] = -torch.inf
    asked = greedy(thinking_token_budget=2, logit_bias={40: 100.0}, allowed_token_ids=[40, 41])
    for output, expected in (([40], 40), ([40, 40], 3), ([40, 40, 3], 4), ([40, 40, 3, 4], 40)):
        assert sample(logits, [asked], rules=rules, output=output)[0].token_id == expected


def test_tokens_asked_for_by_id_come_with_their_rank() -> None:
    logits = random_logits(2)
    rows = sample(logits, [greedy(logprobs=2, logprob_token_ids=[9, 4, 9]), greedy(logprob_token_ids=[4])])
    expected = torch.log_softmax(logits.double(), 1)
    for index, row in enumerate(rows):
        found = row.logprobs
        assert found is not None
        for token, value in zip(found.token_ids, found.logprobs, strict=True):
            assert value == pytest.approx(expected[index, token].item(), abs=1e-5)
        asked = len(found.asked_ranks)
        for token, rank in zip(found.token_ids[-asked:] if asked else [], found.asked_ranks, strict=True):
            assert rank == 1 + int((logits[index] > logits[index, token]).sum())
    first, second = (row.logprobs for row in rows)
    assert first is not None
    assert second is not None
    assert {9, 4} <= set(first.token_ids)
    assert len(first.token_ids) == len(set(first.token_ids[1:])) + 1 <= 5
    assert second.token_ids[1:] == ([4] if rows[1].token_id != 4 else [])


def test_modes_of_log_probabilities() -> None:
    logits = random_logits(1, seed=5)
    params = SamplingParams(temperature=0.5, top_k=3, seed=2, logprobs=5, logit_bias={7: 1.5})
    biased = logits.clone()
    biased[0, 7] += 1.5
    tempered = biased / 0.5
    cut = tempered.masked_fill(tempered < tempered.topk(3).values.min(), -torch.inf)
    expected = {
        "raw_logprobs": torch.log_softmax(logits, 1),
        "raw_logits": logits,
        "processed_logprobs": torch.log_softmax(cut, 1),
        "processed_logits": cut,
    }
    tokens = set()
    for mode, values in expected.items():
        (row,) = sample(logits, [params], mode=mode)
        assert row.logprobs is not None
        tokens.add(row.token_id)
        assert row.logprobs.logprobs == pytest.approx(
            [values[0, token].item() for token in row.logprobs.token_ids], abs=1e-5
        )
        assert row.logprobs.token_ids[1:4] == values[0].topk(3).indices.tolist()
    assert len(tokens) == 1
