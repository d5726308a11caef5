"""Sums, factors and picked rows: exact, on every instruction set and for strided rows."""

from __future__ import annotations

import pytest
import torch

from octavo import ops
from octavo.ops import reference


@pytest.fixture(params=[1, 7, 16, 100, 576])
def rows(request: pytest.FixtureRequest) -> torch.Tensor:
    return torch.randn(9, 2 * request.param, generator=torch.Generator().manual_seed(request.param))


def test_add_is_torchs_sum(rows: torch.Tensor) -> None:
    x, y = rows.chunk(2, dim=1)
    before = ops.isa()
    for isa in ops.available_isas():
        ops.set_isa(isa)
        assert torch.equal(ops.add(x, y), reference.add(x, y))
    ops.set_isa(before)


def test_scale_is_torchs_product(rows: torch.Tensor) -> None:
    before = ops.isa()
    for isa in ops.available_isas():
        ops.set_isa(isa)
        assert torch.equal(ops.scale(rows, 25.3), reference.scale(rows, 25.3))
    ops.set_isa(before)


def test_select_rows_picks_rows(rows: torch.Tensor) -> None:
    x = rows.chunk(2, dim=1)[1]
    ids = torch.tensor([8, 0, 0, 3])
    assert torch.equal(ops.select_rows(x, ids), reference.select_rows(x, ids))
    with pytest.raises(ValueError, match=r"rows\[1\] is 9, must be at least 0 and below 9"):
        ops.select_rows(x, torch.tensor([0, 9]))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="x and y must both be float32"):
        ops.add(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="x must have 2 dimensions"):
        ops.scale(torch.zeros(3), 2.0)
