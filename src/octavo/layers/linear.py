"""Linear layers. A fused one knows the names of what it is fused from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import torch

from octavo import ops
from octavo.layers.base import Slot, TokenLayer
from octavo.quantization import LinearMethod, StoredTensor


def beside(path: str, name: str) -> str:
    """The path of what is called `name` where `path` is."""
    parent = path.rpartition(".")[0]
    return f"{parent}.{name}" if parent else name


class Linear(TokenLayer):
    """x [M, cols] -> [M, sum of rows]: one or more projections of the same input, side by side.

    Args:
        cols: Input width.
        sources: Name in the checkpoint, beside this layer, and rows of each projection. Each may be stored in a
            format of its own.
        bias: Whether every source has a bias.
    """

    methods: Mapping[str, LinearMethod]
    """Of each source; set by the decoder before anything is loaded."""

    def __init__(self, cols: int, sources: dict[str, int], *, bias: bool) -> None:
        self.cols = cols
        self.sources = sources
        self.weights: list[ops.PackedWeight] = []
        self.bias = torch.zeros(sum(sources.values())) if bias else None
        self._packed: dict[str, ops.PackedWeight] = {}
        self._parts: dict[str, dict[str, StoredTensor]] = {source: {} for source in sources}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[M, cols] -> [M, rows of all sources]."""
        return next(iter(self.methods.values())).apply(x, self.weights, self.bias)

    def slots(self, path: str) -> Iterator[tuple[str, Slot]]:
        start = 0
        for source, rows in self.sources.items():
            prefix = beside(path, source)
            for suffix, shape in self.methods[source].shapes(rows, self.cols).items():
                yield f"{prefix}.{suffix}", Slot(shape, partial(self._assign_weight, source, suffix))
            if self.bias is not None:
                yield f"{prefix}.bias", Slot((rows,), partial(self._assign_bias, start, rows))
            start += rows

    def _assign_weight(self, source: str, suffix: str, stored: StoredTensor) -> None:
        parts, rows, method = self._parts[source], self.sources[source], self.methods[source]
        parts[suffix] = stored
        if len(parts) < len(method.shapes(rows, self.cols)):
            return
        self._packed[source] = method.pack(parts, rows, self.cols)
        self._parts[source] = {}
        if len(self._packed) == len(self.sources):
            self.weights = [self._packed[name] for name in self.sources]
            self._packed = {}

    def _assign_bias(self, start: int, rows: int, stored: StoredTensor) -> None:
        assert self.bias is not None
        self.bias[start : start + rows] = stored.data.float()

    @property
    def nbytes(self) -> int:
        bias = 0 if self.bias is None else self.bias.nbytes
        return bias + sum(weight.nbytes for weight in self.weights)
