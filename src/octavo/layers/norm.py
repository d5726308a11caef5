"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from octavo import ops
from octavo.layers.base import Slot, TokenLayer
from octavo.quantization import StoredTensor


class RMSNormLayer(TokenLayer):
    """Over the last dimension; `offset` is added to the weight once, when it is loaded."""

    def __init__(self, size: int, eps: float, offset: float) -> None:
        self.weight = torch.ones(size)
        self._eps = eps
        self._offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[M, size] or [M, heads, size] -> the same."""
        return ops.rms_norm(x, self.weight, self._eps)

    def slots(self, path: str) -> Iterator[tuple[str, Slot]]:
        yield f"{path}.weight", Slot(tuple(self.weight.shape), self._assign)

    def _assign(self, stored: StoredTensor) -> None:
        self.weight = stored.data.float() + self._offset

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes
