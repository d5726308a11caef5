"""Token masks against their plain twin, to the bit, whatever the width of the vocabulary."""

from __future__ import annotations

import math

import pytest
import torch

from octavo import ops

WIDTHS = [1, 31, 32, 33, 64, 1000, 4099]


def random_masks(count: int, width: int, seed: int) -> torch.Tensor:
    """[count, W] int32: also the bits beyond the vocabulary are set at random, and must not matter."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, ops.bitmask_words(width))
    return torch.randint(-(2**31), 2**31, shape, generator=generator, dtype=torch.int64).int()


@pytest.mark.parametrize("width", WIDTHS)
def test_as_the_twin_to_the_bit(width: int) -> None:
    logits = torch.randn(5, width, generator=torch.Generator().manual_seed(width))
    logits[0, 0], logits[3, width // 2] = math.nan, math.inf
    masks, rows = random_masks(3, width, width), torch.tensor([3, 0, 4])
    masks[2] = 0
    fast, plain = logits.clone(), logits.clone()
    ops.apply_token_bitmask(fast, masks, rows)
    with ops.reference_mode():
        ops.apply_token_bitmask(plain, masks, rows)
    assert torch.equal(fast.view(torch.int32), plain.view(torch.int32))
    assert torch.equal(fast[[1, 2]], logits[[1, 2]])
    assert (fast[4] == -math.inf).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_mask_of_ids_lets_these_come_and_no_other(width: int) -> None:
    ids = sorted({0, width - 1, width // 2})
    logits = torch.zeros(1, width)
    ops.apply_token_bitmask(logits, ops.token_bitmask(ids, width)[None], torch.tensor([0]))
    assert torch.isfinite(logits[0]).nonzero().flatten().tolist() == ids


def test_rows_of_a_larger_matrix_are_masked_in_place() -> None:
    whole = torch.zeros(2, 100)
    part = whole[:, :40]
    ops.apply_token_bitmask(part, ops.token_bitmask([7], 40)[None], torch.tensor([1]))
    assert (whole == 0).sum() == 100 + 1 + 60


def test_a_mask_of_another_vocabulary_is_refused() -> None:
    rows = torch.tensor([0])
    for bad in (
        torch.zeros(1, 3, dtype=torch.int32),
        torch.zeros(1, 2),
        torch.zeros(2, 2, dtype=torch.int32),
    ):
        with pytest.raises(ValueError, match="bitmask"):
            ops.apply_token_bitmask(torch.zeros(1, 64), bad, rows)
    for wrong in (-1, 64):
        with pytest.raises(ValueError, match="outside the vocabulary"):
            ops.token_bitmask([wrong], 64)


@pytest.mark.parametrize("vocab", [33, 301, 4100])
@pytest.mark.parametrize("set_bits", [0, 1, 7])
@pytest.mark.parametrize("inverted", [False, True])
def test_masks_that_allow_nearly_nothing_or_nearly_all(vocab: int, set_bits: int, inverted: bool) -> None:
    generator = torch.Generator().manual_seed(vocab + set_bits)
    mask = ops.token_bitmask(torch.randperm(vocab, generator=generator)[:set_bits].tolist(), vocab)
    mask = (~mask if inverted else mask)[None]
    logits = torch.randn(2, vocab, generator=generator)
    expected = logits.clone()
    rows = torch.tensor([1])
    ops.apply_token_bitmask(logits, mask, rows)
    ops.reference.apply_token_bitmask(expected, mask, rows)
    assert torch.equal(logits, expected)
