"""Token vectors in, logits out."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from octavo import ops
from octavo.layers.base import Layer, Slot, TokenLayer
from octavo.layers.linear import Linear
from octavo.layers.parts import Classifier, Embedding, Head, NoHead
from octavo.quantization import LinearMethod, StoredTensor


class EmbeddingLayer(Layer):
    """Rows of a [vocab, hidden] matrix, which a tied head multiplies by."""

    weight: ops.PackedWeight
    method: LinearMethod
    """Set by the decoder before anything is loaded."""

    def __init__(self, part: Embedding, vocab_size: int, hidden_size: int) -> None:
        self._scale = part.scale
        self._shape = (vocab_size, hidden_size)
        self._nbytes = 0

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[M] int64 -> [M, hidden]."""
        vectors = ops.embedding(token_ids, self.weight)
        return vectors if self._scale == 1.0 else ops.scale(vectors, self._scale)

    def slots(self, path: str) -> Iterator[tuple[str, Slot]]:
        yield f"{path}.weight", Slot(self._shape, self._assign)

    def _assign(self, stored: StoredTensor) -> None:
        self.weight = self.method.pack({"weight": stored}, *self._shape)
        self._nbytes = self.weight.nbytes

    @property
    def nbytes(self) -> int:
        return self._nbytes


class HeadLayer(Linear):
    """Logits from a matrix of its own."""

    def __init__(self, part: Head, vocab_size: int, hidden_size: int) -> None:
        super().__init__(hidden_size, {"lm_head": vocab_size}, bias=False)
        self._softcap = part.softcap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[R, hidden] -> [R, vocab]."""
        return _capped(super().forward(x), self._softcap)


class TiedHeadLayer(TokenLayer):
    """Logits from the embedding's matrix."""

    def __init__(self, part: Head, embedding: EmbeddingLayer) -> None:
        self._embedding = embedding
        self._softcap = part.softcap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[R, hidden] -> [R, vocab]."""
        return _capped(ops.linear(x, [self._embedding.weight]), self._softcap)


class NoHeadLayer(TokenLayer):
    """Hidden states as they are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[R, hidden], the same."""
        return x


def build_head(
    part: Head | Classifier | NoHead, embedding: EmbeddingLayer, vocab_size: int, hidden_size: int
) -> TokenLayer:
    """What makes logits, or what stands in its place."""
    if isinstance(part, NoHead):
        return NoHeadLayer()
    if isinstance(part, Classifier):
        return Linear(hidden_size, {"score": part.labels}, bias=False)
    return TiedHeadLayer(part, embedding) if part.tied else HeadLayer(part, vocab_size, hidden_size)


def _capped(logits: torch.Tensor, cap: float) -> torch.Tensor:
    return ops.softcap(logits, cap) if cap else logits
