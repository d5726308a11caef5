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
        """[M, size] -> [M, size]."""
        return ops.rms_norm(x, self.weight, self._eps)

    def forward_heads(self, x: torch.Tensor) -> torch.Tensor:
        """[M, heads, size] -> the same, contiguous; each head on its own."""
        return ops.rms_norm(x.reshape(-1, x.shape[2]), self.weight, self._eps).view(x.shape)

    def slots(self, path: str) -> Iterator[tuple[str, Slot]]:
        yield f"{path}.weight", Slot(tuple(self.weight.shape), self._assign)

    def _assign(self, stored: StoredTensor) -> None:
        self.weight = stored.data.float() + self._offset

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes
