"""Rotary embedding: bits equal to plain torch, against transformers' formula, strided rows, both pairings."""

from __future__ import annotations

import pytest
import torch

from octavo import ops


def table(max_pos: int, rot_dim: int) -> torch.Tensor:
    frequencies = 10_000.0 ** -(torch.arange(0, rot_dim, 2) / rot_dim)
    angles = torch.arange(max_pos)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], dim=-1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("head_dim", "rot_dim"), [(64, 64), (64, 32), (80, 20), (16, 16), (96, 48), (256, 256)]
)
def test_bits_equal_plain_torch_on_every_isa(head_dim: int, rot_dim: int, interleaved: bool) -> None:
    x, positions, cos_sin = torch.randn(7, 3, head_dim), torch.randint(0, 50, (7,)), table(50, rot_dim)
    with ops.reference_mode():
        expected = ops.rope(x.clone(), positions, cos_sin, interleaved)
    assert not torch.equal(expected, x)
    for isa in ops.available_isas():
        ops.set_isa(isa)
        assert torch.equal(ops.rope(x.clone(), positions, cos_sin, interleaved), expected)


def test_agrees_with_transformers_llama() -> None:
    x, positions, cos_sin = torch.randn(9, 2, 64), torch.arange(100, 109), table(200, 64)
    cos, sin = (part.repeat(1, 2).unsqueeze(1) for part in cos_sin[positions].chunk(2, dim=1))
    expected = x * cos + rotate_half(x) * sin  # apply_rotary_pos_emb
    torch.testing.assert_close(ops.rope(x.clone(), positions, cos_sin), expected)


def test_pairs_and_halves_are_the_same_rotation_of_other_dimensions() -> None:
    x, positions, cos_sin = torch.randn(5, 2, 32), torch.arange(5), table(5, 32)
    order = torch.arange(32).view(16, 2).T.reshape(-1)  # even dimensions first
    halves = ops.rope(x[..., order].contiguous(), positions, cos_sin)
    pairs = ops.rope(x.clone(), positions, cos_sin, interleaved=True)
    assert torch.equal(pairs[..., order], halves)


def test_turns_a_slice_of_a_fused_row_in_place() -> None:
    fused = torch.randn(600, 15 * 64)
    before = fused.clone()
    heads = fused[:, : 12 * 64].view(600, 12, 64)
    positions, cos_sin = torch.arange(600), table(600, 64)
    expected = ops.rope(heads.clone(), positions, cos_sin)
    for threads in (1, 2, 4):
        ops.set_num_threads(threads)
        fused.copy_(before)
        assert ops.rope(heads, positions, cos_sin) is heads
        assert torch.equal(heads, expected)
        assert torch.equal(fused[:, 12 * 64 :], before[:, 12 * 64 :])


def test_wrong_arguments_are_named() -> None:
    x, cos_sin = torch.randn(2, 3, 64), table(10, 64)
    with pytest.raises(ValueError, match=r"positions\[1\] is 10"):
        ops.rope(x, torch.tensor([0, 10]), cos_sin)
    with pytest.raises(ValueError, match=r"positions\[0\] is -1"):
        ops.rope(x, torch.tensor([-1, 0]), cos_sin)
    with pytest.raises(ValueError, match="rot_dim 64"):
        ops.rope(torch.randn(2, 3, 32), torch.tensor([0, 1]), cos_sin)
