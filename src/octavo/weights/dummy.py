"""Weights out of nothing: deterministic pseudo-random values, for measuring and testing without a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch

from octavo.weights.source import TORCH_DTYPES, RawDType, RawTensor, TensorInfo

SPREAD = 0.02  # standard deviation: the usual initialisation of language models


class DummySource:
    """Values that depend only on the seed, the tensor's name and its shape.

    Args:
        shapes: Name to shape of every tensor the model asks for.
        dtype: Float format of the values.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], *, seed: int = 0, dtype: RawDType = RawDType.F32
    ) -> None:
        self._shapes = shapes
        self._seed = seed
        self._dtype = dtype

    @property
    def path(self) -> str:
        return "dummy weights"

    def names(self) -> Iterable[str]:
        return self._shapes.keys()

    def file(self, name: str) -> str:
        return self.path

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(self._shapes[name], self._dtype)

    def get(self, name: str) -> RawTensor:
        """Normal values around 0; a norm's weights around 1, so that signals keep their size."""
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
        shape = self._shapes[name]
        data = torch.randn(shape, generator=generator).mul_(SPREAD)
        if len(shape) == 1 and name.endswith("norm.weight"):
            data.add_(1.0)
        return RawTensor(name, self.path, shape, self._dtype, data.to(TORCH_DTYPES[self._dtype]))

    def forget(self, name: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to let go of."""
