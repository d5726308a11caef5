"""Twin of the embedding look-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from octavo.ops.packing import PackedWeight


def embedding(ids: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    """See `octavo.ops.embedding`."""
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < weight.rows:
        raise ValueError(f"ids must lie in [0, {weight.rows}), got {int(ids.min())} to {int(ids.max())}")
    return weight.dequantize()[ids]
