"""The residual sum."""

from __future__ import annotations

import torch


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x + y`, element by element: exact in any order, so torch's own is enough."""
    return x + y
