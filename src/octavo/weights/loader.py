"""Loading that is strict both ways: every tensor the model asks for is there once, and nothing is left over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from octavo.lib.errors import CheckpointError
from octavo.lib.gguf import GGUFFile
from octavo.weights.experts import unstacked
from octavo.weights.gguf import GGUFSource
from octavo.weights.rules import Rule, Rules, Transform
from octavo.weights.safetensors import FLOAT_DTYPES, QUANTISED_DTYPES, SafetensorsSource
from octavo.weights.source import RawTensor, WeightSource

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class WeightSink(Protocol):
    """A model as the loader sees it."""

    def expected(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of every tensor that the model must be given. A tied head is not asked for."""
        ...

    def assign(self, name: str, raw: RawTensor) -> None:
        """Take the tensor for `name`, whose shape has been checked.

        `raw.data` may be a view of the mapped file: read-only, and worth packing or copying rather than keeping.
        """
        ...


def no_progress(done: int, total: int) -> None:
    """The progress callback that does nothing."""


def open_source(path: str | Path, *, quantised: bool = False) -> WeightSource:
    """Open a checkpoint: a `.gguf` file (the first of a split one), a `.safetensors` file, or a directory of them.

    Args:
        path: The file or directory.
        quantised: Whether safetensors may hold integers and 8-bit floats.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    path = Path(path)
    if path.suffix == ".gguf":
        return unstacked(GGUFSource(GGUFFile.open(path)))
    return SafetensorsSource.open(path, QUANTISED_DTYPES if quantised else FLOAT_DTYPES)


def load_weights(
    model: WeightSink, source: WeightSource, rules: Rules, progress: Progress = no_progress
) -> None:
    """Give the model every tensor it expects.

    Args:
        model: Where the tensors go.
        source: Where they come from.
        rules: How they are called and what must be undone on the way.
        progress: Called after each tensor.

    Raises:
        CheckpointError: A tensor is missing, left over, given twice or of another shape than the model's; or the
            checkpoint is damaged. Names the tensor and the file; nothing has been assigned then.
    """
    plan = _plan(model.expected(), source, rules)
    total = sum(item.nbytes for item in plan)
    done = 0
    neighbours: dict[str, list[str]] = {}
    for item in plan:
        model.assign(item.target, item.transform.apply(source.get(item.name)))
        # Tensors of one module may be read when the last of them is there.
        together = neighbours.setdefault(item.target.rpartition(".")[0], [])
        together.append(item.name)
        for name in together:
            source.forget(name)
        done += item.nbytes
        progress(done, total)


@dataclass(frozen=True, slots=True)
class _Item:
    name: str
    nbytes: int
    target: str
    transform: Transform


def _plan(expected: Mapping[str, tuple[int, ...]], source: WeightSource, rules: Rules) -> list[_Item]:
    """Which tensor goes where; raises before anything is loaded."""
    plan: dict[str, _Item] = {}
    for name in source.names():
        rule = rules.resolve(name)
        if rule is None or rule.target not in expected:
            if rule is not None and rules.may_drop(rule.target):
                continue
            raise CheckpointError("has no place in this model", file=source.file(name), tensor=name)
        if rule.target in plan:
            message = f"is {rule.target}, as is {plan[rule.target].name!r}"
            raise CheckpointError(message, file=source.file(name), tensor=name)
        nbytes = _checked_size(source, name, rule, tuple(expected[rule.target]))
        plan[rule.target] = _Item(name, nbytes, rule.target, rule.transform)
    _check_complete(expected, plan, source)
    return list(plan.values())


def _checked_size(source: WeightSource, name: str, rule: Rule, shape: tuple[int, ...]) -> int:
    info = source.info(name)
    if rule.transform.shape(info.shape) != shape:
        alias = "" if rule.target == name else f" ({rule.target})"
        message = f"has shape {list(info.shape)}, but the model{alias} has {list(shape)}"
        raise CheckpointError(message, file=source.file(name), tensor=name)
    return info.nbytes


def _check_complete(
    expected: Mapping[str, tuple[int, ...]], plan: Mapping[str, _Item], source: WeightSource
) -> None:
    missing = [name for name in expected if name not in plan]
    if missing:
        others = f" ({len(missing)} tensors are missing in all)" if len(missing) > 1 else ""
        raise CheckpointError(f"is missing{others}", file=source.path, tensor=missing[0])
