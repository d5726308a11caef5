"""Mixtures of experts: a token alone and among others, on every instruction set, gives the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.ops.emulation import EMULATIONS
from tests.ops.test_linear import bits_of as bits_of_one
from tests.ops.weights import random_rows, random_weight, smallest_cols

from octavo import ops
from octavo.ops.program import PageInputs, Program, StepInputs

EXPERTS, TOP_K = 6, 2


def some_experts(formats: tuple[str, str, str], hidden: int, inners: list[int]) -> ops.ExpertWeights:
    """Experts of random weights in the formats of gate, up and down."""
    return ops.ExpertWeights(
        [
            (
                random_weight(formats[0], inner, hidden, 3 * i).packed,
                random_weight(formats[1], inner, hidden, 3 * i + 1).packed,
                random_weight(formats[2], hidden, inner, 3 * i + 2).packed,
            )
            for i, inner in enumerate(inners)
        ]
    )


def choice(rows: int, experts: int = EXPERTS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and weights as a router gives them; the first expert is rare, the last one common."""
    logits = torch.randn(rows, experts, generator=torch.Generator().manual_seed(seed))
    return ops.route(logits + torch.arange(experts) / 3, TOP_K, renormalise=True)


def bits_of(formats: tuple[str, ...], isa: str) -> str:
    """The instruction set whose bits these are: tiles may have a chain of their own for some format."""
    return next((isa for fmt in formats if bits_of_one(fmt, isa) != "scalar"), "scalar")


def sizes(formats: tuple[str, str, str]) -> tuple[int, int]:
    """hidden and inner, as odd as the formats allow."""
    hidden_block = max(smallest_cols(formats[0]), smallest_cols(formats[1]))
    return {1: 83, 32: 96, 256: 512}[hidden_block], {1: 45, 32: 160, 256: 256}[smallest_cols(formats[2])]


MIXED = [(fmt, fmt, fmt) for fmt in ops.FORMATS] + [
    ("q4_k", "q4_k", "q6_k"),
    ("q4_0", "q6_k", "q8_0"),
    ("q8_0", "f32", "bf16"),
]


@pytest.mark.parametrize("formats", MIXED, ids="-".join)
def test_bits_do_not_depend_on_rows_threads_or_isa(formats: tuple[str, str, str]) -> None:
    hidden, inner = sizes(formats)
    weights = some_experts(formats, hidden, [inner] * EXPERTS)
    x, (ids, shares) = random_rows(41, hidden), choice(41)
    for isa in ops.available_isas():
        ops.set_isa(bits_of(formats, isa))
        expected = ops.experts(x, ids, shares, weights, "silu")
        ops.set_isa(isa)
        for threads in (1, 3):
            ops.set_num_threads(threads)
            for rows in (1, 2, 7, 16, 41):
                got = ops.experts(x[:rows], ids[:rows], shares[:rows], weights, "silu")
                assert torch.equal(got, expected[:rows]), (isa, threads, rows)
        alone = ops.experts(x[40:], ids[40:], shares[40:], weights, "silu")
        assert torch.equal(alone, expected[40:])


@pytest.mark.parametrize(
    "formats", [("f32", "f32", "f32"), ("q4_k", "q4_k", "q6_k"), ("q8_0", "q8_0", "q8_0")]
)
def test_it_is_the_ops_one_by_one(formats: tuple[str, str, str]) -> None:
    """Each expert's part has the bits of the plain products, and slots are summed in order."""
    hidden, inner = sizes(formats)
    weights = some_experts(formats, hidden, [inner] * EXPERTS)
    x, (ids, shares) = random_rows(23, hidden), choice(23)
    got = ops.experts(x, ids, shares, weights, "gelu_tanh")
    for row in range(23):
        parts = []
        for expert in ids[row].tolist():
            gate, up, down = weights.weights[expert]
            parts.append(
                ops.linear(ops.act_mul(ops.linear(x[row : row + 1], [gate, up]), "gelu_tanh"), [down])
            )
        first = shares[row, 0] * parts[0][0]
        fused = shares[row, 1].double() * parts[1][0].double() + first.double()  # one rounding: an fma
        assert torch.equal(got[row], fused.float())


@pytest.mark.parametrize("act", ["silu", "gelu"])
def test_matches_the_torch_twin(act: str) -> None:
    weights = some_experts(("q5_1", "q5_1", "bf16"), 128, [64] * EXPERTS)
    x, (ids, shares) = random_rows(30, 128), choice(30)
    got = ops.experts(x, ids, shares, weights, act)
    with ops.reference_mode():
        expected = ops.experts(x, ids, shares, weights, act)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3 * float(expected.std()))


@pytest.mark.parametrize("isa", EMULATIONS)
def test_emulated_avx512(isa: str, emulate: Callable[[str], str]) -> None:
    emulate(isa)
    formats = ("q4_k", "q4_k", "q6_k")
    weights = some_experts(formats, 256, [256] * 3)
    x, (ids, shares) = random_rows(40, 256), choice(40, experts=3)
    logits = random_rows(40, 61)
    ops.set_isa(bits_of(formats, isa))
    expected = (
        ops.experts(x, ids, shares, weights, "silu"),
        *ops.route(logits, 5, renormalise=True, shared=True),
    )
    ops.set_isa(isa)
    got = ops.experts(x, ids, shares, weights, "silu"), *ops.route(logits, 5, renormalise=True, shared=True)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("fmt", ["q8_0", "f16", "q4_k"])
def test_experts_of_different_widths(fmt: str) -> None:
    """A shared expert is wider than the others."""
    inners = [256, 256, 768]
    weights = some_experts((fmt, fmt, fmt), 256, inners)
    x = random_rows(19, 256)
    ids, shares = ops.route(random_rows(19, 3), 2, renormalise=False, shared=True)
    assert ids[:, 2].tolist() == [2] * 19
    got = ops.experts(x, ids, shares, weights, "silu")
    with ops.reference_mode():
        expected = ops.experts(x, ids, shares, weights, "silu")
    # A weight that tiles round to the other side (its twin does not round sub-scales) shows behind the activation.
    torch.testing.assert_close(got, expected, rtol=3e-2, atol=3e-2 * float(expected.std()))


def test_more_tokens_than_are_held_at_a_time() -> None:
    weights = some_experts(("f32", "f32", "f32"), 16, [16] * 2)
    weights_wide = some_experts(("q8_0", "q8_0", "q8_0"), 8192, [64] * 2)
    for chosen, hidden, rows in ((weights, 16, 300), (weights_wide, 8192, 1100)):
        x, (ids, shares) = random_rows(rows, hidden), choice(rows, experts=2)
        together = ops.experts(x, ids, shares, chosen, "silu")
        for row in (0, 255, 256, rows - 1):
            one = slice(row, row + 1)
            assert torch.equal(together[one], ops.experts(x[one], ids[one], shares[one], chosen, "silu"))


def test_strided_rows() -> None:
    weights = some_experts(("q4_0", "q4_0", "q4_0"), 64, [32] * EXPERTS)
    wide, (ids, shares) = random_rows(12, 200), choice(12)
    x = wide[:, 100:164]
    expected = ops.experts(x.contiguous(), ids, shares, weights, "silu")
    assert torch.equal(ops.experts(x, ids, shares, weights, "silu"), expected)
    across = x.T.contiguous().T
    assert torch.equal(ops.experts(across, ids, shares, weights, "silu"), expected)


@pytest.mark.parametrize("experts", [1, 5, 16, 17, 128])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_route(experts: int, renormalise: bool, shared: bool) -> None:
    logits = random_rows(33, experts + shared) / 3
    for top_k in {1, min(8, experts), experts}:
        with ops.reference_mode():
            expected_ids, expected = ops.route(logits, top_k, renormalise=renormalise, shared=shared)
        results = []
        for isa in ops.available_isas():
            ops.set_isa(isa)
            ids, weights = ops.route(logits, top_k, renormalise=renormalise, shared=shared)
            assert torch.equal(ids, expected_ids)
            torch.testing.assert_close(weights, expected)
            results.append(weights)
        assert all(torch.equal(weights, results[0]) for weights in results)


def test_ties_go_to_the_lowest_id() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0, 3.0], [0.0] * 6, [-1.0, -2.0, -1.0, -3.0, -3.0, -1.0]])
    for isa in ops.available_isas():
        ops.set_isa(isa)
        ids, weights = ops.route(logits, 4, renormalise=False)
        assert ids.tolist() == [[1, 3, 5, 2], [0, 1, 2, 3], [0, 2, 5, 1]]
        assert weights[1].tolist() == [pytest.approx(1 / 6)] * 4


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_non_finite_logit_surfaces_in_its_row_only(poison: float) -> None:
    logits = random_rows(5, 20)
    clean_ids, clean = ops.route(logits, 3, renormalise=True)
    logits[2, 11] = poison
    ids, weights = ops.route(logits, 3, renormalise=True)
    assert bool(weights[2].isnan().all())
    assert bool(((ids >= 0) & (ids < 20)).all())
    keep = [0, 1, 3, 4]
    assert torch.equal(ids[keep], clean_ids[keep])
    assert torch.equal(weights[keep], clean[keep])


def test_impossible_experts_weigh_nothing() -> None:
    logits = torch.full((1, 4), float("-inf"))
    logits[0, 2] = 1.0
    ids, weights = ops.route(logits, 3, renormalise=False)
    assert ids[0, 0] == 2
    assert weights.tolist() == [[1.0, 0.0, 0.0]]


def test_recorded() -> None:
    """Routing and experts replay to the bits of the ops, whatever the rows."""
    embedding = random_weight("f32", 50, 64).packed
    router = random_weight("f32", EXPERTS, 64, seed=9).packed
    weights = some_experts(("q8_0", "q8_0", "q4_1"), 64, [96] * EXPERTS)

    def forward(step: StepInputs) -> torch.Tensor:
        x = ops.embedding(step.token_ids, embedding)
        ids, shares = ops.route(ops.linear(x, [router]), TOP_K, renormalise=True)
        return ops.experts(x, ids, shares, weights, "silu")

    example = _step(40)
    program = Program(example)
    held: list[torch.Tensor] = []

    def allocate(*shape: int) -> torch.Tensor:
        held.append(torch.empty(*shape))
        return held[-1]

    with program.record(allocate):
        out = forward(example)
    for rows in (1, 3, 40):
        step = _step(rows, seed=rows)
        program.run(step)
        assert torch.equal(out[:rows], forward(step))
    assert [name for name, _ in program.run_timed(example)] == ["embedding", "linear", "route", "experts"]


def _step(rows: int, seed: int = 0) -> StepInputs:
    return StepInputs(
        torch.randint(50, (rows,), generator=torch.Generator().manual_seed(seed)),
        torch.arange(rows),
        torch.tensor([0, rows], dtype=torch.int32),
        torch.tensor([rows], dtype=torch.int32),
        (PageInputs(torch.zeros(1, 4, dtype=torch.int32), torch.arange(rows)),),
    )


def test_no_rows() -> None:
    weights = some_experts(("q8_0", "q8_0", "q8_0"), 64, [32] * EXPERTS)
    ids, shares = choice(0)
    assert ops.experts(torch.empty(0, 64), ids, shares, weights, "silu").shape == (0, 64)


def test_bad_operands_are_named() -> None:
    weights = some_experts(("q8_0", "q8_0", "q8_0"), 64, [32] * EXPERTS)
    ids, shares = choice(3)
    with pytest.raises(ValueError, match=r"x must be \[rows, 64\]"):
        ops.experts(torch.zeros(3, 32), ids, shares, weights, "silu")
    with pytest.raises(ValueError, match="weights must be"):
        ops.experts(torch.zeros(3, 64), ids, shares[:2], weights, "silu")
    ids[1, 0] = EXPERTS
    with pytest.raises(ValueError, match=r"ids\[1, 0\] is 6, must be at least 0 and below 6"):
        ops.experts(torch.zeros(3, 64), ids, shares, weights, "silu")
    with pytest.raises(ValueError, match="top_k is 7, must be 1 to the 6 experts"):
        ops.route(torch.zeros(2, 6), 7, renormalise=True)
    good, bad = weights.weights[0], random_weight("q8_0", 64, 64).packed
    with pytest.raises(ValueError, match=r"expert 1 has weights of \[\(32, 64\), \(32, 64\), \(64, 64\)\]"):
        ops.ExpertWeights([good, (good[0], good[1], bad)])
