"""GGUF files: opening one or the parts of a split one, and typed access to the metadata."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TypeVar

from octavo.lib.errors import CheckpointError
from octavo.lib.gguf.metadata import MAX_KEYS, Cursor, Metadata, MetadataReader
from octavo.lib.gguf.tensors import GGUFTensor, read_tensors

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_TENSORS = 1 << 17
MAX_FILES = 9999
_LEAST_KEY_BYTES = 8 + 1 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
_SPLIT_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z", re.DOTALL)

T = TypeVar("T", bound=str | int | float | bool)


@dataclass(frozen=True, slots=True)
class _Part:
    """One file of a checkpoint; most checkpoints have one."""

    path: Path
    map: mmap
    metadata: Metadata
    tensors: dict[str, GGUFTensor]


class GGUFFile:
    """A checked, memory-mapped GGUF checkpoint; open with `GGUFFile.open`.

    Attributes:
        path: The (first) file.
        metadata: Key to Python value; arrays are lists, decoded at first access.
        tensors: Name to tensor, in the order of the file, over all parts of a split checkpoint.
    """

    def __init__(self, parts: list[_Part]) -> None:
        self.path = parts[0].path
        self.metadata: Mapping[str, object] = parts[0].metadata
        self.tensors: Mapping[str, GGUFTensor] = MappingProxyType(_join(parts))
        self._parts = parts

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Open and check a GGUF file; of a split checkpoint, its first file.

        Raises:
            CheckpointError: The file, or another part of it, is missing, damaged or not GGUF.
                Names the file and the key or tensor.
        """
        first = _open_part(Path(path))
        parts = [first]
        try:
            parts += [_open_part(other) for other in _other_files(first)]
            return cls(parts)
        except CheckpointError:
            _close(parts)
            raise

    def close(self) -> None:
        """Unmap the files. A view from `GGUFTensor.data` keeps its file mapped until the view is gone."""
        _close(self._parts)

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_str(self, key: str, default: str | None = None) -> str:
        """The string under `key`; absence without a default is an error, as is another type."""
        return self._scalar(key, str, "a string", default)

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """The bool under `key`; absence without a default is an error, as is another type."""
        return self._scalar(key, bool, "a bool", default)

    def get_float(self, key: str, default: float | None = None) -> float:
        """The float under `key`; absence without a default is an error, as is another type."""
        return self._scalar(key, float, "a float", default)

    def get_int(
        self, key: str, default: int | None = None, *, minimum: int = 0, maximum: int = 2**63 - 1
    ) -> int:
        """The integer under `key`, within [minimum, maximum]; absence without a default is an error."""
        value = self._scalar(key, int, "an integer", default)
        if not minimum <= value <= maximum:
            raise self._error(f"metadata key {key!r} is {value}, but must be between {minimum} and {maximum}")
        return value

    def get_list(self, key: str, element: type[T], default: list[T] | None = None) -> list[T]:
        """The array under `key`, whose elements must all be of type `element` (str, int, float or bool)."""
        if key not in self.metadata and default is not None:
            return default
        value = self._present(key)
        if not isinstance(value, list) or (value and type(value[0]) is not element):
            raise self._error(f"metadata key {key!r} must be an array of {element.__name__}")
        return value

    def array_length(self, key: str) -> int:
        """Number of elements of the array under `key`, without decoding it (a vocabulary, say)."""
        length = self._parts[0].metadata.array_length(key) if key in self.metadata else -1
        if length < 0:
            raise self._error(f"metadata key {key!r} must be an array")
        return length

    def _scalar(self, key: str, kind: type[T], what: str, default: T | None) -> T:
        if key not in self.metadata and default is not None:
            return default
        value = self._present(key)
        if type(value) is not kind:  # not isinstance: a bool is no integer here
            raise self._error(f"metadata key {key!r} must be {what}, but is of type {type(value).__name__}")
        return value

    def _present(self, key: str) -> object:
        if key not in self.metadata:
            raise self._error(f"metadata key {key!r} is missing")
        return self.metadata[key]

    def _error(self, message: str) -> CheckpointError:
        return CheckpointError(message, file=str(self.path))


def _close(parts: list[_Part]) -> None:
    for part in parts:
        # An exported view makes closing impossible; the map then goes with the last view.
        with contextlib.suppress(BufferError):
            part.map.close()


def _open_part(path: Path) -> _Part:
    try:
        with path.open("rb") as stream:
            # Mapping nothing is an error of its own kind, so an empty file is told apart first.
            if stream.seek(0, 2) == 0:
                raise CheckpointError("the file is empty", file=str(path))
            data = mmap(stream.fileno(), 0, access=ACCESS_READ)
    except OSError as e:
        raise CheckpointError(f"cannot be read: {e.strerror or e}", file=str(path)) from e
    try:
        return _parse(path, data)
    except CheckpointError:
        data.close()
        raise


def _parse(path: Path, data: mmap) -> _Part:
    cursor = Cursor(data, str(path))
    _check_version(cursor)
    tensor_count = cursor.count("the number of tensors", MAX_TENSORS, _LEAST_TENSOR_BYTES)
    key_count = cursor.count("the number of metadata keys", MAX_KEYS, _LEAST_KEY_BYTES)
    metadata = MetadataReader(cursor).read(key_count)
    alignment = _alignment(cursor, metadata)
    tensors = read_tensors(cursor, tensor_count, alignment, path)
    return _Part(path, data, metadata, tensors)


def _check_version(cursor: Cursor) -> None:
    start = cursor.take(4, "the magic number")
    if cursor.data[start : start + 4] != MAGIC:
        raise cursor.error("is not a GGUF file: it does not begin with the letters GGUF")
    version = cursor.u32("the version")
    if version in VERSIONS:
        return
    if version & 0xFFFF == 0:
        raise cursor.error("is a big-endian GGUF file; only little-endian ones are supported")
    raise cursor.error(f"has GGUF version {version}; versions {VERSIONS[0]} and {VERSIONS[1]} are supported")


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise cursor.error(
            f"general.alignment must be a power of two up to {MAX_ALIGNMENT}, but is {value!r}"
        )
    return value


def _split_number(part: _Part, key: str, default: int) -> int:
    value = part.metadata.get(key, default)
    if type(value) is not int or value < 0:
        raise CheckpointError(
            f"metadata key {key!r} must be a whole number, but is {value!r}", file=str(part.path)
        )
    return value


def _other_files(first: _Part) -> list[Path]:
    """The other files of a split checkpoint, checked against the name and the metadata of the first."""
    count = _split_number(first, "split.count", 1)
    number = _split_number(first, "split.no", 0)
    if count <= 1:
        return []
    match = _SPLIT_NAME.match(first.path.name)
    if match is None or int(match["count"]) != count or int(match["number"]) != number + 1:
        expected = f"-{number + 1:05d}-of-{count:05d}.gguf"
        raise CheckpointError(
            f"is part {number + 1} of {count}, so its name must end in {expected}", file=str(first.path)
        )
    name = f"{match['prefix']}-{{:05d}}-of-{count:05d}.gguf"
    if number != 0:
        raise CheckpointError(
            f"is part {number + 1} of {count}; open the first, {name.format(1)}", file=str(first.path)
        )
    if count > MAX_FILES:
        raise CheckpointError(f"split.count is {count}; the limit is {MAX_FILES}", file=str(first.path))
    return [first.path.with_name(name.format(n)) for n in range(2, count + 1)]


def _join(parts: list[_Part]) -> dict[str, GGUFTensor]:
    """All tensors of the parts, once the parts agree on who they are."""
    count = len(parts)
    tensors: dict[str, GGUFTensor] = {}
    for number, part in enumerate(parts):
        if count > 1 and (_split_number(part, "split.no", -1), _split_number(part, "split.count", -1)) != (
            number,
            count,
        ):
            raise CheckpointError(
                f"does not say that it is part {number + 1} of {count}", file=str(part.path)
            )
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise CheckpointError(
                    f"occurs in {tensors[name].file.name} too", file=str(part.path), tensor=name
                )
            tensors[name] = tensor
    expected = _split_number(parts[0], "split.tensors.count", len(tensors))
    if count > 1 and expected != len(tensors):
        raise CheckpointError(
            f"announces {expected} tensors, but its {count} files hold {len(tensors)}",
            file=str(parts[0].path),
        )
    return tensors
