"""What callers of `encode`, `embed`, `classify` and `score` get back. Names are vLLM's."""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from octavo.types.outputs import RequestMetrics


@dataclass(slots=True)
class PoolingOutput:
    """The vector of one prompt."""

    data: array[float]
    """float32; `numpy.asarray` and `torch.frombuffer` read it without a copy."""


@dataclass(slots=True)
class PoolingRequestOutput:
    """A pooling request that has ended. With `error` set its vector is empty."""

    request_id: str
    outputs: PoolingOutput
    prompt_token_ids: list[int]
    prompt: str | None = None
    num_cached_tokens: int = 0
    finished: bool = True
    metrics: RequestMetrics | None = None
    error: str | None = None


@dataclass(slots=True)
class EmbeddingOutput:
    """An embedding as a list of numbers."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """How many numbers."""
        return len(self.embedding)


@dataclass(slots=True)
class ClassificationOutput:
    """A number for each class: probabilities, unless the request wanted no activation."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        """How many classes."""
        return len(self.probs)


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts go together: a cross-encoder's number, or the cosine of two embeddings."""

    score: float


Output = TypeVar("Output")


@dataclass(slots=True)
class _Finished(Generic[Output]):
    """What the callers of one task get for one prompt, or for one pair (`prompt_token_ids` are both texts')."""

    request_id: str
    outputs: Output
    prompt_token_ids: list[int] = field(default_factory=list)
    num_cached_tokens: int = 0
    finished: bool = True


class EmbeddingRequestOutput(_Finished[EmbeddingOutput]):
    """What `LLM.embed` gives for one prompt."""

    __slots__ = ()


class ClassificationRequestOutput(_Finished[ClassificationOutput]):
    """What `LLM.classify` gives for one prompt."""

    __slots__ = ()


class ScoringRequestOutput(_Finished[ScoringOutput]):
    """What `LLM.score` gives for one pair."""

    __slots__ = ()


def floats_of(data: bytes) -> array[float]:
    """The numbers in little-endian float32 bytes."""
    values = array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
