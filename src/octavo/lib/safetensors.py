"""A strict reader of safetensors files and of the index of a sharded checkpoint: memory-mapped, no torch, no numpy.

The format: an unsigned 64-bit header length, a JSON header (name -> dtype, shape, data_offsets), then the data, which the
tensors must fill without gap or overlap (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import MappingProxyType
from typing import Any

from octavo.lib.errors import CheckpointError
from octavo.lib.file_pages import forget_pages

MAX_HEADER_BYTES = 100_000_000  # the format's own bound
MAX_INDEX_BYTES = 100_000_000
MAX_DIMS = 16
# Bits of one element.
DTYPE_BITS: Mapping[str, int] = MappingProxyType(
    {
        "F64": 64,
        "F32": 32,
        "F16": 16,
        "BF16": 16,
        "F8_E4M3": 8,
        "F8_E5M2": 8,
        "F8_E8M0": 8,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
        "F4": 4,
        "C64": 64,
        "I64": 64,
        "I32": 32,
        "I16": 16,
        "I8": 8,
        "U64": 64,
        "U32": 32,
        "U16": 16,
        "U8": 8,
        "BOOL": 8,
    }
)


@dataclass(frozen=True, slots=True)
class SafetensorsTensor:
    """One tensor, still in its file. `dtype` is the format's name for it (a key of `DTYPE_BITS`)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: Path
    _map: mmap | bytes
    _offset: int

    def data(self) -> memoryview:
        """The raw bytes as a read-only view of the mapped file; nothing is copied."""
        return memoryview(self._map)[self._offset : self._offset + self.nbytes]

    def forget(self) -> None:
        """The data has been used: it need not stay in memory. Views stay valid, and read the file again."""
        if isinstance(self._map, mmap):
            forget_pages(self._map, self._offset, self.nbytes)


class SafetensorsFile:
    """A checked, memory-mapped safetensors file; open with `SafetensorsFile.open`.

    Attributes:
        path: The file.
        tensors: Name to tensor, in the order of their data.
        metadata: The free-form strings under `__metadata__`.
    """

    def __init__(
        self, path: Path, data: mmap | bytes, tensors: dict[str, SafetensorsTensor], metadata: dict[str, str]
    ) -> None:
        self.path = path
        self.tensors: Mapping[str, SafetensorsTensor] = MappingProxyType(tensors)
        self.metadata: Mapping[str, str] = MappingProxyType(metadata)
        self._map = data

    @classmethod
    def open(cls, path: str | Path) -> SafetensorsFile:
        """Map and check a file.

        Raises:
            CheckpointError: The file is missing, damaged or not safetensors. Names the file and the tensor.
        """
        path = Path(path)
        data = _map_file(path)
        try:
            return _parse(path, data)
        except CheckpointError:
            data.close()
            raise

    def close(self) -> None:
        """Unmap the file. A view from `SafetensorsTensor.data` keeps it mapped until the view is gone."""
        if isinstance(self._map, mmap):
            with contextlib.suppress(BufferError):
                self._map.close()


def parse_safetensors(data: bytes, name: str) -> SafetensorsFile:
    """Check what came as bytes; `name` stands for the file in errors.

    Raises:
        CheckpointError: it is damaged or not safetensors.
    """
    if len(data) < 8:
        raise CheckpointError("is too short to be a safetensors file", file=name)
    return _parse(Path(name), data)


def read_index(path: str | Path) -> dict[str, str]:
    """The `weight_map` of a `model.safetensors.index.json`: tensor name to the name of the file that holds it.

    Raises:
        CheckpointError: The index cannot be read, or says something other than names of files beside it.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_INDEX_BYTES:
            raise CheckpointError(f"is larger than {MAX_INDEX_BYTES} bytes", file=str(path))
        raw = path.read_bytes()
    except OSError as e:
        raise CheckpointError(f"cannot be read: {e.strerror or e}", file=str(path)) from e
    weight_map = _parse_json(raw, str(path), "the index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("has no weight_map", file=str(path))
    for name, file in weight_map.items():
        # Only plain names: an index must not make us open files elsewhere.
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            message = (
                f"is assigned to {file!r}, which is not the name of a .safetensors file beside the index"
            )
            raise CheckpointError(message, file=str(path), tensor=name)
    return weight_map


def _map_file(path: Path) -> mmap:
    try:
        with path.open("rb") as stream:
            if stream.seek(0, 2) < 8:
                raise CheckpointError("is too short to be a safetensors file", file=str(path))
            return mmap(stream.fileno(), 0, access=ACCESS_READ)
    except OSError as e:
        raise CheckpointError(f"cannot be read: {e.strerror or e}", file=str(path)) from e


def _parse_json(raw: bytes, file: str, what: str) -> dict[str, Any]:
    """A JSON object without duplicate keys."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise CheckpointError(f"{what} has the key {twice!r} twice", file=file)
        return result

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:  # malformed JSON or UTF-8; absurd nesting
        raise CheckpointError(f"{what} is not valid JSON ({type(e).__name__}: {e})", file=file) from e
    if not isinstance(value, dict):
        raise CheckpointError(f"{what} is not a JSON object", file=file)
    return value


def _parse(path: Path, data: mmap | bytes) -> SafetensorsFile:
    file = str(path)
    (size,) = struct.unpack_from("<Q", data)
    if size > min(MAX_HEADER_BYTES, len(data) - 8):
        raise CheckpointError(f"announces a header of {size} bytes, but has {len(data)} in all", file=file)
    raw = data[8 : 8 + size]
    if not raw.startswith(b"{"):
        raise CheckpointError("is not a safetensors file: its header is not a JSON object", file=file)
    header = _parse_json(raw, file, "the header")
    metadata = _checked_metadata(header.pop("__metadata__", {}), file)
    start = 8 + size
    entries = [_checked_entry(name, entry, file) for name, entry in header.items()]
    entries.sort(key=lambda e: (e.begin, e.end))
    _check_placement(entries, len(data) - start, file)
    tensors = {
        e.name: SafetensorsTensor(e.name, e.dtype, e.shape, e.end - e.begin, path, data, start + e.begin)
        for e in entries
    }
    return SafetensorsFile(path, data, tensors, metadata)


def _checked_metadata(value: object, file: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CheckpointError("__metadata__ must map strings to strings", file=file)
    return value


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _checked_entry(name: str, entry: object, file: str) -> _Entry:
    def error(message: str) -> CheckpointError:
        return CheckpointError(message, file=file, tensor=name)

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise error("must have exactly the keys dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise error(f"has the unknown dtype {dtype!r}")
    if not _is_sizes(shape) or len(shape) > MAX_DIMS:
        raise error(f"has the impossible shape {shape!r}")
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise error(f"has the impossible data_offsets {offsets!r}")
    bits = prod(shape) * DTYPE_BITS[dtype]
    if bits != 8 * (offsets[1] - offsets[0]):
        message = f"has shape {shape} of {dtype}, which is {bits // 8} bytes"
        raise error(f"{message}, but its data has {offsets[1] - offsets[0]}")
    return _Entry(name, dtype, tuple(shape), offsets[0], offsets[1])


def _is_sizes(value: object) -> bool:
    # type() and not isinstance(): JSON's true is no size.
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value)


def _check_placement(entries: list[_Entry], available: int, file: str) -> None:
    """The tensors, ordered by offset, must fill the data section exactly."""
    expected = 0
    for entry in entries:
        if entry.begin != expected:
            fault = "overlaps the tensor before it" if entry.begin < expected else "leaves a gap before it"
            message = f"{fault}: it starts at offset {entry.begin}, not at {expected}"
            raise CheckpointError(message, file=file, tensor=entry.name)
        if entry.end > available:
            message = f"ends at offset {entry.end}, but the file holds {available} bytes: is it truncated?"
            raise CheckpointError(message, file=file, tensor=entry.name)
        expected = entry.end
    if expected != available:
        raise CheckpointError(f"{available - expected} bytes follow the last tensor", file=file)
