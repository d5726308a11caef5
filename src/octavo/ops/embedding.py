"""Rows of a packed matrix: token embeddings, also of a head that is tied to them."""

from __future__ import annotations

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_module, new_output
from octavo.ops.operands import address
from octavo.ops.packing import PackedWeight


def embedding(ids: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    """Rows `ids` of the weight as float32: [M] int64 -> [M, K]. Read from the packed panels: no second copy is kept.

    Raises:
        ValueError: an id lies outside [0, rows).
    """
    native = native_module()
    if native is None:
        return reference.embedding(ids, weight)
    count = ids.shape[0]
    out = new_output(count, weight.cols)
    native.read_rows(weight.native, address("ids", ids, torch.int64, (count,)), count, out.data_ptr())
    return out
