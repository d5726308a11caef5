"""The tree of layers. Attribute names are the checkpoint's module names, so a path in the tree is a path in the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from octavo.attention.metadata import ForwardBatch
from octavo.layers.parts import Rope
from octavo.layers.rope import RopeTable
from octavo.quantization import StoredTensor


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that a layer must be given."""

    shape: tuple[int, ...]
    assign: Callable[[StoredTensor], None]


class Layer:
    """A node of the model. Plain attributes rather than `nn.Module`: a decode step makes hundreds of these calls."""

    def children(self) -> Iterator[tuple[str, Layer]]:
        """Layers held in attributes, by name. One that belongs elsewhere is held under a leading underscore."""
        for name, value in vars(self).items():
            if isinstance(value, Layer) and not name.startswith("_"):
                yield name, value

    def walk(self, path: str = "") -> Iterator[tuple[str, Layer]]:
        """This layer and all below it with their paths."""
        yield path, self
        for name, child in self.children():
            yield from child.walk(f"{path}.{name}" if path else name)

    def slots(self, path: str) -> Iterator[tuple[str, Slot]]:
        """The tensors that this layer itself (not its children) must be given, by full name."""
        return iter(())

    @property
    def nbytes(self) -> int:
        """Bytes of weights that this layer itself holds."""
        return 0


AnyLayer = TypeVar("AnyLayer", bound=Layer)


class TokenLayer(Layer, ABC):
    """A layer that works on each token alone."""

    @abstractmethod
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[M, in] -> [M, out]."""


class SequenceLayer(Layer, ABC):
    """A layer in which tokens see each other."""

    @abstractmethod
    def forward(self, x: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""


class LayerList(Layer, Generic[AnyLayer]):
    """Numbered layers."""

    def __init__(self, layers: list[AnyLayer]) -> None:
        self.items = layers

    def children(self) -> Iterator[tuple[str, Layer]]:
        for index, layer in enumerate(self.items):
            yield str(index), layer


class RopeTables:
    """One table of cosines and sines for each kind of rope in a model."""

    def __init__(self, max_position: int) -> None:
        self._max_position = max_position
        self._tables: dict[Rope, RopeTable] = {}

    def table(self, rope: Rope) -> RopeTable:
        if rope not in self._tables:
            self._tables[rope] = RopeTable(rope, self._max_position)
        return self._tables[rope]

    def reach(self, last_position: int) -> None:
        """Make every table good for positions up to `last_position`."""
        for table in self._tables.values():
            table.reach(last_position)


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a part needs to know of its surroundings to build its layer."""

    hidden_size: int
    ropes: RopeTables
    layer: int
    """Index of the block that is being built."""
