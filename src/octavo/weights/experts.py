"""Experts that lie stacked in one tensor, as a tensor each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from octavo.weights.source import RawTensor, TensorInfo, WeightSource

_STACKED = "_exps.weight"


def unstacked(source: WeightSource) -> WeightSource:
    """The source with a tensor for each expert; itself where there are no stacks."""
    return UnstackedExperts(source) if any(name.endswith(_STACKED) for name in source.names()) else source


class UnstackedExperts:
    """A source whose `blk.0.ffn_up_exps.weight` [E, rows, cols] appears as `blk.0.ffn_up_exps.0.weight` and so on.

    Args:
        source: With GGUF's names.
    """

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        self._parts: dict[str, tuple[str, int | None]] = {}
        for name in source.names():
            self._parts |= self._parts_of(name)

    def _parts_of(self, name: str) -> dict[str, tuple[str, int | None]]:
        """Names that a tensor appears under, each with the tensor and the expert in it."""
        if not name.endswith(_STACKED) or len(self._source.info(name).shape) != 3:
            return {name: (name, None)}
        stem = name.removesuffix(".weight")
        return {f"{stem}.{e}.weight": (name, e) for e in range(self._source.info(name).shape[0])}

    @property
    def path(self) -> str:
        return self._source.path

    def names(self) -> Iterable[str]:
        return self._parts.keys()

    def file(self, name: str) -> str:
        return self._source.file(self._stored(name)[0])

    def info(self, name: str) -> TensorInfo:
        """See `WeightSource.info`."""
        stored, expert = self._stored(name)
        info = self._source.info(stored)
        return info if expert is None else replace(info, shape=info.shape[1:])

    def get(self, name: str) -> RawTensor:
        """See `WeightSource.get`: a view of the stack."""
        stored, expert = self._stored(name)
        raw = self._source.get(stored)
        return raw if expert is None else replace(raw, name=name, shape=raw.shape[1:], data=raw.data[expert])

    def forget(self, name: str) -> None:
        """Of the whole stack: experts not read yet are not in memory either."""
        self._source.forget(self._stored(name)[0])

    def close(self) -> None:
        self._source.close()

    def _stored(self, name: str) -> tuple[str, int | None]:
        return self._parts.get(name, (name, None))
