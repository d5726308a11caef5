"""Tiny models run best on one thread, ours and torch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from octavo import ops


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads(), ops.num_threads()
    torch.set_num_threads(1)
    ops.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    ops.set_num_threads(before[1])
