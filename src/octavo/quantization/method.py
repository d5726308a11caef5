"""The interface of a quantisation method, and of what finds the method of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from octavo import ops


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as its file holds it.

    Attributes:
        data: The typed tensor; for a block format uint8 [rows, bytes of a row]. May be a read-only view of a file.
        format: `f32`, `bf16`, `f16`, the name of a GGUF block format (`q4_k`), or of what needs scales (`i32`, `i8`,
            `f8_e4m3`).
    """

    data: torch.Tensor
    format: str


class LinearMethod(Protocol):
    """Storage and arithmetic of a linear layer. Stateless: one object serves every layer."""

    def shapes(self, rows: int, cols: int) -> Mapping[str, tuple[int, ...]]:
        """What to ask a checkpoint for to make a [rows, cols] weight, by the last part of the name."""
        ...

    def pack(self, stored: Mapping[str, StoredTensor], rows: int, cols: int) -> ops.PackedWeight:
        """The weight in the kernels' layout, from the tensors that `shapes` asked for."""
        ...

    def apply(
        self, x: torch.Tensor, weights: Sequence[ops.PackedWeight], bias: torch.Tensor | None
    ) -> torch.Tensor:
        """x [M, K] times each weight's transpose, side by side: [M, sum of rows]."""
        ...


class MethodResolver(Protocol):
    """Knows the method of every linear layer of a checkpoint, and of the embedding."""

    def resolve(self, path: str) -> LinearMethod:
        """The method of the matrix that checkpoints have at `path` (`model.layers.0.self_attn.q_proj`)."""
        ...


@dataclass(frozen=True, slots=True)
class UniformResolver:
    """The same method everywhere."""

    method: LinearMethod

    def resolve(self, path: str) -> LinearMethod:
        return self.method
