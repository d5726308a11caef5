"""From pooled hidden states to the vectors that requests get: projections, the cut to fewer dimensions, the activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.config import DenseConfig, PoolingConfig
from octavo.layers.linear import Linear
from octavo.models.decoder import stored_tensor
from octavo.quantization import FloatMethod
from octavo.types.pooling_params import PoolingParams
from octavo.weights.loader import load_weights, open_source
from octavo.weights.rules import RenameRules
from octavo.weights.source import RawTensor

Vector = NDArray[np.float64]
_NAME = "linear"


class Projection:
    """A `Dense` module of Sentence Transformers: a matrix, a bias, perhaps tanh."""

    def __init__(self, config: DenseConfig) -> None:
        self._config = config
        self._linear = Linear(config.in_features, {_NAME: config.out_features}, bias=config.bias)
        self._linear.methods = {_NAME: FloatMethod()}
        self._slots = dict(self._linear.slots(_NAME))

    @classmethod
    def load(cls, config: DenseConfig) -> Projection:
        """Read its weights, strictly.

        Raises:
            CheckpointError: they are missing, left over or of another shape; names the tensor and the file.
        """
        projection = cls(config)
        source = open_source(Path(config.folder))
        try:
            load_weights(projection, source, RenameRules())
        finally:
            source.close()
        return projection

    def expected(self) -> Mapping[str, tuple[int, ...]]:
        """See `WeightSink.expected`."""
        return {name: slot.shape for name, slot in self._slots.items()}

    def assign(self, name: str, raw: RawTensor) -> None:
        """See `WeightSink.assign`."""
        self._slots[name].assign(stored_tensor(raw))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[R, in] -> [R, out]; a row depends on its own input only."""
        x = self._linear.forward(x)
        return torch.tanh(x) if self._config.activation == "tanh" else x


class VectorHead:
    """Makes what requests get of pooled rows. Whatever rows come together, each has the bits that it has alone."""

    def __init__(self, config: PoolingConfig, projections: Sequence[Projection] = ()) -> None:
        self._projections = projections
        self._activation = _ACTIVATIONS[config.activation]

    def vectors(self, pooled: torch.Tensor, wanted: Sequence[PoolingParams]) -> Iterator[bytes | None]:
        """Of rows [R, H] float32: each one's vector in little-endian float32; None where it is not finite."""
        for projection in self._projections:
            pooled = projection.forward(pooled)
        for row, params in zip(pooled.numpy(), wanted, strict=True):
            yield self._vector(row[: params.dimensions], activate=bool(params.use_activation))

    def _vector(self, row: NDArray[np.float32], *, activate: bool) -> bytes | None:
        if not np.isfinite(row).all():
            return None
        values = self._activation(row.astype(np.float64)) if activate else row
        return values.astype("<f4").tobytes()


def _normalized(row: Vector) -> Vector:
    """Length 1; zeros stay zeros."""
    length = float(np.sqrt(np.square(row).sum()))
    unit: Vector = row / (length or 1.0)
    return unit


def _softmax(row: Vector) -> Vector:
    shares: Vector = np.exp(row - row.max())
    shares /= shares.sum()
    return shares


def _sigmoid(row: Vector) -> Vector:
    """1 / (1 + exp(-x)) without an overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * row))


def _identity(row: Vector) -> Vector:
    return row


_ACTIVATIONS: dict[str, Callable[[Vector], Vector]] = {
    "normalize": _normalized,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "identity": _identity,
}
