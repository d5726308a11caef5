"""Rules as data: what a checkpoint's tensors are called here, and what its converter did to them that must be undone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from octavo.lib.errors import CheckpointError
from octavo.weights.source import RawTensor


class Transform(Protocol):
    """A change to a raw tensor on its way into the model."""

    def apply(self, raw: RawTensor) -> RawTensor:
        """The changed tensor; `raw` itself is left alone."""
        ...

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a changed tensor."""
        return stored


@dataclass(frozen=True, slots=True)
class Keep(Transform):
    """No change."""

    def apply(self, raw: RawTensor) -> RawTensor:
        return raw


@dataclass(frozen=True, slots=True)
class UndoRopePermutation(Transform):
    """Puts the rows of a q or k projection back into Hugging Face's order.

    llama.cpp's converter reorders the rows of each head from (first half, second half) to interleaved pairs, for
    architectures whose rotary embedding it computes on adjacent elements (`LlamaModel.permute` in its conversion/).
    Here rotary embeddings work on halves. Rows of quantised blocks are independent, so they move as they are.
    """

    heads: int

    def apply(self, raw: RawTensor) -> RawTensor:
        """Row (h, 2j + i) becomes row (h, i * head_dim / 2 + j); works on weights and biases."""
        rows = raw.shape[0]
        if rows % (2 * self.heads):
            message = f"has {rows} rows, which is no multiple of twice its {self.heads} heads"
            raise CheckpointError(message, file=raw.file, tensor=raw.name)
        order = torch.arange(rows).view(self.heads, rows // self.heads // 2, 2).transpose(1, 2).reshape(-1)
        return replace(raw, data=raw.data.index_select(0, order))


@dataclass(frozen=True, slots=True)
class SubtractOne(Transform):
    """Undoes the converter's `w + 1` on norms that compute `x * (1 + w)`.

    Adding the one again gives the stored float32 value back to the bit wherever that was itself a float32 sum `w + 1`
    (for values in [0.5, 2] by Sterbenz's lemma, elsewhere because the stored value then has the grid of the sum).
    """

    def apply(self, raw: RawTensor) -> RawTensor:
        if raw.dtype.is_quantized:
            raise CheckpointError(f"is a norm stored as {raw.dtype}", file=raw.file, tensor=raw.name)
        return replace(raw, data=raw.data - 1)


@dataclass(frozen=True, slots=True)
class AsRow(Transform):
    """Makes a vector a matrix of one row: llama.cpp drops that dimension."""

    def apply(self, raw: RawTensor) -> RawTensor:
        shape = self.shape(raw.shape)
        return replace(raw, shape=shape, data=raw.data.reshape(1, -1))

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        return (1, *stored) if len(stored) == 1 else stored


@dataclass(frozen=True, slots=True)
class AsVector(Transform):
    """Makes a number a vector of one: what tools write as one scale for a matrix has either shape."""

    def apply(self, raw: RawTensor) -> RawTensor:
        shape = self.shape(raw.shape)
        return replace(raw, shape=shape, data=raw.data.reshape(shape))

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        return stored or (1,)


KEEP = Keep()


@dataclass(frozen=True, slots=True)
class Rule:
    """The name of a tensor in the model, `{}` standing for the number of its layer (and expert), and how it gets there."""

    target: str
    transform: Transform = KEEP


class Rules(Protocol):
    """How one kind of checkpoint maps to module names."""

    def resolve(self, name: str) -> Rule | None:
        """The rule for a checkpoint's tensor, its target filled in; None: the tensor is not known."""
        ...

    def may_drop(self, target: str) -> bool:
        """Whether `target` may be left over where the model does not ask for it."""
        ...


class TableRules:
    """Rules by exact name but for the numbers between dots: `blk.3.attn_q.weight` is `blk.{}.attn_q.weight`.

    Args:
        table: Checkpoint name to rule.
        optional: Target names that a model need not ask for.
    """

    _NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")

    def __init__(self, table: Mapping[str, Rule], optional: Collection[str] = ()) -> None:
        self._table = table
        self._optional = frozenset(optional)

    def resolve(self, name: str) -> Rule | None:
        rule = self._table.get(self._NUMBER.sub("{}", name))
        return rule and replace(rule, target=rule.target.format(*self._NUMBER.findall(name)))

    def may_drop(self, target: str) -> bool:
        return target in self._optional


class RenameRules:
    """Names kept as they are but for ordered substitutions, numbers made vectors: what most Hugging Face checkpoints need.

    Args:
        renames: Pairs of regular expression and replacement, each applied once, in order.
        optional: Regular expressions; a whole target name that matches one need not be asked for by the model.
    """

    def __init__(self, renames: Collection[tuple[str, str]] = (), optional: Collection[str] = ()) -> None:
        self._renames = [(re.compile(pattern), replacement) for pattern, replacement in renames]
        self._optional = [re.compile(pattern) for pattern in optional]

    def resolve(self, name: str) -> Rule | None:
        for pattern, replacement in self._renames:
            name = pattern.sub(replacement, name, count=1)
        return Rule(name, AsVector())

    def may_drop(self, target: str) -> bool:
        return any(pattern.fullmatch(target) for pattern in self._optional)
