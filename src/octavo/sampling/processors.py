"""Logits processors that a user brings: the batch-level interface of vLLM, so that a class written for it needs little change.

A processor is made once. Before `apply` sees a batch, `update_state` tells how it differs from the one before: requests that
left, came, or stand in another row. What a request gave in `SamplingParams.extra_args` is for the processors to read.
"""

from __future__ import annotations

import enum
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import torch

from octavo.config import ModelConfig
from octavo.lib.errors import ConfigError, InvalidRequestError
from octavo.types.sampling_params import SamplingParams


class MoveDirectionality(enum.Enum):
    """How a request changed its row."""

    UNIDIRECTIONAL = 0
    """From the first row to the second one, which was free."""
    SWAP = 1
    """The two rows have changed places."""


AddedRequest = tuple[int, SamplingParams, list[int] | None, list[int]]
"""Row, parameters, tokens of the prompt, tokens of the answer: this list grows as the answer does."""
MovedRequest = tuple[int, int, MoveDirectionality]


@dataclass(frozen=True)
class BatchUpdate:
    """How a batch differs from the one before. To be carried out in the order removed, added, moved."""

    batch_size: int
    """Rows that the next logits have."""
    removed: Sequence[int]
    """Rows whose request has left and that no added one took."""
    added: Sequence[AddedRequest]
    """An added request may take the row of one that has left."""
    moved: Sequence[MovedRequest]


class LogitsProcessor(ABC):
    """Changes the logits of a batch.

    Args:
        config: The model's settings.
        device: Where logits lie.
        is_pin_memory: Whether host tensors should be pinned; never on a CPU.
    """

    extra_args: ClassVar[frozenset[str] | None] = None
    """Names in `SamplingParams.extra_args` that this class reads; None: it may read any."""

    @classmethod  # noqa: B027 - nothing to check is fine
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a request. Raises: ValueError: what is wrong with its `extra_args`."""

    def __init__(self, config: ModelConfig, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__()

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Change logits [R, V], in place or into another tensor."""

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Whether the most likely token never changes; such a processor sees logits after temperature, and no greedy rows'."""

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Take in how the next batch differs from the last one; None: not at all."""


RequestLogitsProcessor = Callable[..., torch.Tensor]
"""(tokens of the answer, logits [V]) or (tokens of the prompt, tokens of the answer, logits [V]) to logits [V]."""


class AdapterLogitsProcessor(LogitsProcessor):
    """A processor that is a function for each request that wants one."""

    def __init__(self, config: ModelConfig, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(config, device, is_pin_memory)
        self._rows: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {}

    @abstractmethod
    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """The function for a request; None: its logits stay."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """See `LogitsProcessor.update_state`."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, params, prompt, output in batch_update.added:
            self._rows.pop(row, None)
            made = self.new_req_logits_processor(params)
            if made is not None:
                takes_prompt = len(inspect.signature(made).parameters) > 2
                self._rows[row] = partial(made, prompt, output) if takes_prompt else partial(made, output)
        for source, target, kind in batch_update.moved:
            _move(self._rows, source, target, kind)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """See `LogitsProcessor.apply`."""
        for row, change in self._rows.items():
            logits[row] = change(logits[row])
        return logits


def _move(rows: dict[int, Any], source: int, target: int, kind: MoveDirectionality) -> None:
    moving, there = rows.pop(source, None), rows.pop(target, None)
    if moving is not None:
        rows[target] = moving
    if there is not None and kind is MoveDirectionality.SWAP:
        rows[source] = there


@dataclass(frozen=True, slots=True)
class ProcessorRow:
    """A row's request, as processors see it."""

    key: int
    """No other request ever has it."""
    params: SamplingParams
    prompt: list[int]
    output: list[int]


class ProcessorChain:
    """All processors of an engine, in their order.

    Args:
        processors: Told about the same batches.
    """

    def __init__(self, processors: Sequence[LogitsProcessor] = ()) -> None:
        self._before = [one for one in processors if not one.is_argmax_invariant()]
        self._after = [one for one in processors if one.is_argmax_invariant()]
        self._keys: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._before or self._after)

    @property
    def has_invariant(self) -> bool:
        """Whether any wants to see logits after temperature."""
        return bool(self._after)

    def start(self, rows: Sequence[ProcessorRow]) -> None:
        """The next logits have these rows."""
        update = batch_update(self._keys, rows)
        self._keys = [row.key for row in rows]
        for one in (*self._before, *self._after):
            one.update_state(update)

    def apply(self, logits: torch.Tensor) -> None:
        """Before penalties; in place."""
        _apply(self._before, logits)

    def apply_invariant(self, logits: torch.Tensor) -> None:
        """After temperature; in place."""
        _apply(self._after, logits)


def _apply(processors: Sequence[LogitsProcessor], logits: torch.Tensor) -> None:
    for one in processors:
        changed = one.apply(logits)
        if changed is not logits:
            logits.copy_(changed)


def batch_update(before: Sequence[int], rows: Sequence[ProcessorRow]) -> BatchUpdate | None:
    """What turns a batch of requests `before` (their keys) into `rows`; None: they are the same."""
    keys = [row.key for row in rows]
    if keys == list(before):
        return None
    staying = set(keys)
    # None where a row is free; rows are added at the end as needed.
    now: list[int | None] = [key if key in staying else None for key in before]
    free = [row for row, key in enumerate(now) if key is None]
    known, added = set(before), []
    for row in rows:
        if row.key in known:
            continue
        index = free.pop(0) if free else len(now)
        now[index : index + 1] = [row.key]
        added.append((index, row.params, row.prompt, row.output))
    return BatchUpdate(len(rows), free, added, _moves(now, keys))


def _moves(now: list[int | None], wanted: Sequence[int]) -> list[MovedRequest]:
    """Moves and swaps that put each request into its row; `now` is used up."""
    moves: list[MovedRequest] = []
    place = {key: row for row, key in enumerate(now) if key is not None}
    for row, key in enumerate(wanted):
        source, there = place[key], now[row]
        if source == row:
            continue
        kind = MoveDirectionality.UNIDIRECTIONAL if there is None else MoveDirectionality.SWAP
        moves.append((source, row, kind))
        now[row], now[source] = key, there
        if there is not None:
            place[there] = source
    return moves


def load_processor_classes(paths: Sequence[str]) -> list[type[LogitsProcessor]]:
    """Import processors named `package.module:Class`.

    Raises:
        ConfigError: one cannot be imported, or is no `LogitsProcessor`.
    """
    return [_load_class(path) for path in paths]


def make_processors(config: ModelConfig) -> ProcessorChain:
    """The processors that `--logits-processors` and entry points name."""
    classes = load_processor_classes(config.logits_processors)
    return ProcessorChain([cls(config, torch.device("cpu"), False) for cls in classes])


def check_extra_args(classes: Sequence[type[LogitsProcessor]], params: SamplingParams) -> None:
    """Let processors refuse a request.

    Raises:
        InvalidRequestError: one did, or no processor reads one of the `extra_args`.
    """
    readers = [cls.extra_args for cls in classes]
    known = frozenset().union(*(names for names in readers if names is not None))
    unknown = sorted(set(params.extra_args or ()) - known) if None not in readers else []
    if unknown:
        raise InvalidRequestError(
            f"extra_args has {unknown[0]!r}, which no logits processor reads.", param="extra_args"
        )
    for cls in classes:
        try:
            cls.validate_params(params)
        except ValueError as error:
            raise InvalidRequestError(f"extra_args: {error}", param="extra_args") from error


def _load_class(path: str) -> type[LogitsProcessor]:
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"--logits-processors {path!r} cannot be imported: {error}.", param="logits_processors"
        ) from error
    if not (isinstance(found, type) and issubclass(found, LogitsProcessor)):
        raise ConfigError(
            f"--logits-processors {path!r} is no subclass of octavo.sampling.LogitsProcessor.",
            param="logits_processors",
        )
    return found
