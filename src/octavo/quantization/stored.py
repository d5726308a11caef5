"""Which matrices of a checkpoint are quantised: those whose tensors are there as its method names them.

Lists in its configuration (`modules_to_not_convert`, `ignore`, ...) say the same in several ways, none of which is needed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from octavo.quantization.floating import FloatMethod
from octavo.quantization.method import LinearMethod


class StoredMethod(LinearMethod, Protocol):
    """The method of checkpoints that some tool has quantised."""

    marker: str
    """Last part of the name of a tensor that only quantised matrices have."""


class StoredResolver:
    """The method of what is quantised, floats for the rest.

    Args:
        names: The checkpoint's tensors under the names that the model has for them.
    """

    def __init__(self, method: StoredMethod, names: Collection[str]) -> None:
        self._method = method
        self._names = names
        self._floats = FloatMethod()

    def resolve(self, path: str) -> LinearMethod:
        return self._method if f"{path}.{self._method.marker}" in self._names else self._floats
