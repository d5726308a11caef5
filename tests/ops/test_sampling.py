"""Sampling against an oracle that sorts everything in float64, its distribution, its edges, and its bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch

from octavo import ops

GREEDY = 1 - 2**-53  # the largest uniform: would pick the last survivor if the row were not greedy


@dataclass(frozen=True)
class Filters:
    """Sampling parameters of one row."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


PLAIN = Filters()
FILTERS = [
    PLAIN,
    Filters(temperature=0.3),
    Filters(temperature=2.5),
    Filters(top_k=1),
    Filters(top_k=7),
    Filters(top_k=1000),
    Filters(top_p=0.5),
    Filters(top_p=0.95),
    Filters(min_p=0.1),
    Filters(min_p=1.0),
    Filters(0.8, 37, 0.9, 0.05),
    Filters(1.5, 47, 0.8, 0.0),
]


def draw(logits: torch.Tensor, filters: Filters | list[Filters], uniform: torch.Tensor) -> torch.Tensor:
    rows = filters if isinstance(filters, list) else [filters] * logits.shape[0]
    return ops.sample(
        logits,
        torch.tensor([f.temperature for f in rows]),
        torch.tensor([f.top_k for f in rows], dtype=torch.int32),
        torch.tensor([f.top_p for f in rows]),
        torch.tensor([f.min_p for f in rows]),
        uniform,
    )


@dataclass(frozen=True)
class Oracle:
    """Survivors of one row in rank order with their probabilities, from a full sort in float64."""

    ids: torch.Tensor
    probabilities: torch.Tensor
    margin: float
    """How near the top_p cut is to a token's border: below 1e-6 float32 may cut elsewhere."""

    @classmethod
    def of(cls, logits: torch.Tensor, f: Filters) -> Oracle:
        scaled = (logits - logits.max()) * (1 / torch.tensor(f.temperature))
        scaled, ids = torch.sort(scaled, descending=True, stable=True)
        weights = scaled.double().exp()
        keep = weights >= f.min_p * (1 - 1e-7)
        weights, ids = weights[keep], ids[keep]
        if f.top_k > 0:
            weights, ids = weights[: f.top_k], ids[: f.top_k]
        margin = 1.0
        if f.top_p < 1:
            below = weights.cumsum(0) / weights.sum() - torch.tensor(f.top_p).double()
            margin = float(below.abs().min())
            count = int((below < 0).sum()) + 1
            weights, ids = weights[:count], ids[:count]
        return cls(ids, weights / weights.sum(), margin)

    def token(self, uniform: float) -> int | None:
        """The token drawn; None if `uniform` falls on a border within the precision of float32."""
        cumulative = self.probabilities.cumsum(0)
        near = (cumulative[:-1] - uniform).abs().min() if len(cumulative) > 1 else 1.0
        if self.margin < 1e-6 or near < 1e-6:
            return None
        return int(self.ids[int(torch.searchsorted(cumulative, uniform, right=True))])


def check_against_oracle(logits: torch.Tensor, filters: Filters, uniform: torch.Tensor) -> int:
    """Compare every row; return how many rows were too near to a border to tell."""
    unclear = 0
    for row, token, u in zip(logits, draw(logits, filters, uniform).tolist(), uniform.tolist(), strict=True):
        expected = Oracle.of(row, filters).token(u)
        unclear += expected is None
        assert expected in (None, token)
    return unclear


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("vocab", [1, 5, 16, 33, 1000])
def test_agrees_with_a_full_sort(vocab: int, filters: Filters) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(60, vocab, generator=generator) * 4
    uniform = torch.rand(60, generator=generator, dtype=torch.float64)
    assert check_against_oracle(logits, filters, uniform) <= 3


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_agrees_with_a_full_sort_among_many_ties(filters: Filters) -> None:
    generator = torch.Generator().manual_seed(9)
    logits = torch.randint(-6, 1, (60, 300), generator=generator).float()
    uniform = torch.rand(60, generator=generator, dtype=torch.float64)
    assert check_against_oracle(logits, filters, uniform) <= 3


@pytest.mark.parametrize("vocab", [49_152, 151_936])
def test_agrees_with_a_full_sort_of_a_whole_vocabulary(vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(2, vocab, generator=generator) * 2.5
    logits[1:].clamp_(max=5.0)  # many equal best tokens
    uniform = torch.rand(2, generator=generator, dtype=torch.float64)
    for filters in (PLAIN, Filters(0.7, 0, 0.9), Filters(1.0, 50), Filters(1.0, 0, 1.0, 0.02)):
        assert check_against_oracle(logits, filters, uniform) <= 2


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_native_and_twin_draw_the_same(filters: Filters) -> None:
    generator = torch.Generator().manual_seed(77)
    logits = torch.randn(200, 500, generator=generator) * 3
    uniform = torch.rand(200, generator=generator, dtype=torch.float64)
    with ops.reference_mode():
        expected = draw(logits, filters, uniform)
    assert torch.equal(draw(logits, filters, uniform), expected)


@pytest.mark.parametrize(
    "filters",
    [PLAIN, Filters(0.7), Filters(top_k=5), Filters(top_p=0.8), Filters(1.3, 12, 0.9, 0.03)],
    ids=str,
)
def test_a_hundred_thousand_draws_follow_the_distribution(filters: Filters) -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(1, 24, generator=generator) * 1.5
    draws = 100_000
    tokens = draw(
        logits.expand(draws, 24), filters, torch.rand(draws, generator=generator, dtype=torch.float64)
    )
    oracle = Oracle.of(logits[0], filters)
    counts = tokens.bincount(minlength=24).double()
    expected = oracle.probabilities * draws
    assert counts[oracle.ids].sum() == draws  # nothing outside of the survivors
    chi_square = float(((counts[oracle.ids] - expected) ** 2 / expected).sum())
    freedom = len(oracle.ids) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


def test_equal_logits_are_drawn_by_id() -> None:
    vocab = 1000
    uniform = torch.tensor([0.0, 0.0009, 0.0011, 0.5, 0.7315, GREEDY], dtype=torch.float64)
    tokens = draw(torch.full((6, vocab), -3.25), PLAIN, uniform)
    assert tokens.tolist() == [0, 0, 1, 500, 731, 999]
    assert (
        draw(torch.zeros(1, vocab), Filters(top_k=10), torch.tensor([GREEDY], dtype=torch.float64)).item()
        == 9
    )
    half = draw(torch.zeros(1, vocab), Filters(top_p=0.5), torch.tensor([GREEDY], dtype=torch.float64))
    assert half.item() == 499


def test_the_uniform_runs_over_the_survivors_in_rank_order() -> None:
    logits = torch.tensor([0.1, 3.0, -1.0, 3.0, 2.0]).log_softmax(0)
    order = [1, 3, 4, 0, 2]
    cumulative = logits.double().exp()[order].cumsum(0)
    for rank, token in enumerate(order):
        low = cumulative[rank - 1] if rank else torch.tensor(0.0, dtype=torch.float64)
        uniform = torch.stack([low + 1e-6, cumulative[rank] - 1e-6])
        assert draw(logits.expand(2, 5), PLAIN, uniform).tolist() == [token, token]


@pytest.mark.parametrize(
    "filters",
    [Filters(temperature=t) for t in (0.0, 1e-6, 1e-5, 1e-4)]
    + [Filters(top_p=1e-4), Filters(top_p=0.0), Filters(top_k=1)],
    ids=str,
)
def test_tiny_temperature_or_top_p_is_greedy(filters: Filters) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 2000, generator=generator) * 5
    uniform = torch.full((50,), GREEDY, dtype=torch.float64)
    assert torch.equal(draw(logits, filters, uniform), logits.argmax(dim=1))


def test_all_draw_the_line_to_greedy_at_the_same_number() -> None:
    """The float32 next to 1e-5 is a little less than 1e-5. Of two equal logits a greedy row takes the first."""
    line = torch.tensor([1e-5])
    logits, last = torch.tensor([[2.0, 2.0, 1.0]]), torch.tensor([GREEDY], dtype=torch.float64)
    off = (torch.zeros(1, dtype=torch.int32), torch.ones(1), torch.zeros(1))
    for temperature, greedy in ((line, False), (line.nextafter(torch.zeros(1)), True)):
        for isa in ops.available_isas():
            ops.set_isa(isa)
            assert ops.sample(logits, temperature, *off, last).item() == (0 if greedy else 1), isa
        with ops.reference_mode():
            assert ops.sample(logits, temperature, *off, last).item() == (0 if greedy else 1)
        shown = ops.filtered_logits(logits, temperature, *off)
        assert torch.equal(shown, logits) == greedy


def test_masked_tokens_are_never_drawn() -> None:
    logits = torch.zeros(1, 200)
    logits[:, ::2] = -math.inf
    uniform = torch.rand(500, dtype=torch.float64)
    for filters in (PLAIN, Filters(temperature=100.0), Filters(top_k=150), Filters(top_p=0.99)):
        assert (draw(logits.expand(500, 200), filters, uniform) % 2 == 1).all()


def test_rows_that_cannot_be_sampled_are_flagged_and_harm_no_other() -> None:
    logits = torch.randn(6, 40)
    logits[1, 39] = math.nan
    logits[2] = -math.inf
    logits[3, 7] = math.inf
    logits[4] = math.nan
    uniform = torch.full((6,), 0.5, dtype=torch.float64)
    warm, greedy = draw(logits, PLAIN, uniform), draw(logits, Filters(0.0), uniform)
    assert warm.tolist()[1:5] == [-1, -1, -1, -1]
    assert greedy.tolist()[1:5] == [-1, -1, 7, -1]
    assert torch.equal(ops.argmax(logits), greedy)
    for row in (0, 5):
        assert warm[row] == draw(logits[row : row + 1], PLAIN, uniform[:1])
        assert greedy[row] == logits[row].argmax()
    with ops.reference_mode():
        assert torch.equal(draw(logits, PLAIN, uniform), warm)
        assert torch.equal(ops.argmax(logits), greedy)


def test_a_row_does_not_depend_on_the_others_the_threads_or_the_isa() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(len(FILTERS) * 3, 3000, generator=generator) * 3
    filters = [replace(f) for f in FILTERS] * 3
    uniform = torch.rand(len(filters), generator=generator, dtype=torch.float64)
    rows = range(len(filters))
    alone = torch.cat([draw(logits[i : i + 1], filters[i], uniform[i : i + 1]) for i in rows])
    for isa in ops.available_isas():
        ops.set_isa(isa)
        for threads in (1, 2, 4):
            ops.set_num_threads(threads)
            assert torch.equal(draw(logits, filters, uniform), alone)


@pytest.mark.parametrize("vocab", [1, 15, 16, 1000, 49_152])
def test_argmax_takes_the_first_of_equals(vocab: int) -> None:
    logits = torch.randint(0, 4, (8, vocab)).float()
    expected = [row.index(max(row)) for row in logits.tolist()]
    for isa in ops.available_isas():
        ops.set_isa(isa)
        assert ops.argmax(logits).tolist() == expected
    assert ops.argmax(torch.tensor([[-0.0, 0.0], [-5.0, -math.inf]])).tolist() == [0, 0]


def test_wrong_arguments_are_named() -> None:
    logits, one = torch.zeros(2, 8), torch.ones(2)
    top_k = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="uniform"):
        ops.sample(logits, one, top_k, one, one, one)
    with pytest.raises(ValueError, match="NaN"):
        ops.sample(logits, one * math.nan, top_k, one, one, one * 0.5)
    with pytest.raises(ValueError, match="top_k"):
        ops.sample(logits, one, top_k.long(), one, one, one * 0.5)
    with pytest.raises(ValueError, match="top_p"):
        ops.sample(logits, one, top_k, torch.ones(1), one, one * 0.5)
    with pytest.raises(ValueError, match="logits"):
        ops.argmax(torch.zeros(8))
    empty = torch.zeros(0)
    assert ops.sample(torch.zeros(0, 8), empty, top_k[:0], empty, empty, empty).shape == (0,)
