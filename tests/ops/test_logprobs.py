"""Log probabilities: against float64, ties and ranks, the same bits on every ISA and in any batch."""

from __future__ import annotations

import math

import pytest
import torch

from octavo import ops


@pytest.mark.parametrize(("vocab", "k"), [(1, 0), (1, 1), (17, 3), (1000, 20), (1000, 1000), (49_152, 5)])
def test_agrees_with_a_full_sort_in_float64(vocab: int, k: int) -> None:
    generator = torch.Generator().manual_seed(vocab + k)
    logits = torch.randn(6, vocab, generator=generator) * 4 + 20
    logits[3:] = logits[3:].round()  # ties
    chosen = torch.randint(0, vocab, (6,), generator=generator)
    values, ids, ranks = ops.logprobs(logits, chosen, k)
    exact = logits.double().log_softmax(dim=1)
    order = torch.sort(logits, dim=1, descending=True, stable=True).indices
    assert torch.equal(ids, torch.cat([chosen[:, None], order[:, :k]], dim=1))
    torch.testing.assert_close(values.double(), exact.gather(1, ids), rtol=3e-7, atol=1e-6)
    assert torch.equal(ranks, (order == chosen[:, None]).nonzero()[:, 1] + 1)


def test_twin_agrees_with_native() -> None:
    logits, chosen = torch.randn(4, 300) * 3, torch.tensor([0, 299, 7, 100])
    with ops.reference_mode():
        expected = ops.logprobs(logits, chosen, 8)
    values, ids, ranks = ops.logprobs(logits, chosen, 8)
    assert torch.equal(ids, expected[1])
    assert torch.equal(ranks, expected[2])
    torch.testing.assert_close(values, expected[0], rtol=3e-7, atol=1e-6)


def test_masked_tokens_have_minus_infinity() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]])
    values, ids, ranks = ops.logprobs(logits, torch.tensor([3]), 4)
    assert ids.tolist() == [[3, 0, 2, 1, 3]]
    torch.testing.assert_close(
        values, torch.tensor([[-math.inf, -math.log(2), -math.log(2), -math.inf, -math.inf]])
    )
    assert ranks.tolist() == [4]


def test_a_row_does_not_depend_on_the_others_the_threads_or_the_isa() -> None:
    logits = torch.randn(30, 5000) * 3
    chosen = torch.randint(0, 5000, (30,))
    rows = [ops.logprobs(logits[i : i + 1], chosen[i : i + 1], 6) for i in range(30)]
    alone = [torch.cat(parts) for parts in zip(*rows, strict=True)]
    for isa in ops.available_isas():
        ops.set_isa(isa)
        for threads in (1, 2, 4):
            ops.set_num_threads(threads)
            for part, expected in zip(ops.logprobs(logits, chosen, 6), alone, strict=True):
                assert torch.equal(part, expected)


def test_a_broken_row_stays_within_bounds() -> None:
    logits = torch.full((2, 50), math.nan)
    logits[1] = torch.arange(50.0)
    values, ids, ranks = ops.logprobs(logits, torch.tensor([4, 49]), 3)
    assert ((ids >= 0) & (ids < 50)).all()
    assert values[0].isnan().all()
    assert ids[1].tolist() == [49, 49, 48, 47]
    assert ranks[1] == 1


def test_wrong_arguments_are_named() -> None:
    logits = torch.zeros(2, 8)
    with pytest.raises(ValueError, match=r"token_ids\[1\] is 8"):
        ops.logprobs(logits, torch.tensor([0, 8]), 1)
    with pytest.raises(ValueError, match="k is 9"):
        ops.logprobs(logits, torch.tensor([0, 1]), 9)
