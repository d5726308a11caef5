"""The tensor table of a GGUF file: names, shapes, types, and the check that the data section is exactly filled."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from mmap import mmap
from pathlib import Path

from octavo.lib.file_pages import forget_pages
from octavo.lib.gguf.layout import GGMLType
from octavo.lib.gguf.metadata import Cursor

MAX_NAME_BYTES = 255
MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor, still in its file.

    Attributes:
        shape: Row-major as torch has it, outermost dimension first (GGUF stores the reverse).
        nbytes: Size of the data, exact.
        file: The file (of a split checkpoint) that holds it.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: GGMLType
    nbytes: int
    file: Path
    _map: mmap
    _offset: int

    def data(self) -> memoryview:
        """The raw bytes as a read-only view of the mapped file; nothing is copied."""
        return memoryview(self._map)[self._offset : self._offset + self.nbytes]

    def forget(self) -> None:
        """The data has been used: it need not stay in memory. Views stay valid, and read the file again."""
        forget_pages(self._map, self._offset, self.nbytes)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the tensor table; `offset` counts from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    nbytes: int
    offset: int


def read_tensors(cursor: Cursor, count: int, alignment: int, path: Path) -> dict[str, GGUFTensor]:
    """Read `count` entries at the cursor and place them in the data section that follows.

    Raises:
        CheckpointError: A name that comes twice; a shape, type, size or offset that cannot be right.
    """
    entries = _read_table(cursor, count, alignment)
    start = pad(cursor.position, alignment)
    _check_placement(cursor, entries, start, alignment)
    return {
        e.name: GGUFTensor(e.name, e.shape, e.type, e.nbytes, path, cursor.data, start + e.offset)
        for e in entries
    }


def pad(size: int, alignment: int) -> int:
    """`size` rounded up to a multiple of `alignment`, a power of two."""
    return (size + alignment - 1) & -alignment


def _read_table(cursor: Cursor, count: int, alignment: int) -> list[_Entry]:
    entries: dict[str, _Entry] = {}
    for index in range(count):
        name = cursor.text(f"the name of tensor {index}", MAX_NAME_BYTES)
        if not name:
            raise cursor.error(f"tensor {index} has no name")
        if name in entries:
            raise cursor.error("occurs twice", name)
        entries[name] = _read_entry(cursor, name, alignment)
    return list(entries.values())


def _read_entry(cursor: Cursor, name: str, alignment: int) -> _Entry:
    where = f"the table entry of tensor {name!r}"
    dims = cursor.u32(where)
    if dims > MAX_DIMS:
        raise cursor.error(f"has {dims} dimensions; the limit is {MAX_DIMS}", name)
    shape = tuple(cursor.u64(where) for _ in range(dims))[::-1]
    number = cursor.u32(where)
    try:
        kind = GGMLType(number)
    except ValueError:
        raise cursor.error(f"has the unknown type {number}", name) from None
    nbytes = _checked_size(cursor, name, shape, kind)
    offset = cursor.u64(where)
    if offset % alignment:
        raise cursor.error(f"starts at offset {offset}, which is not a multiple of {alignment}", name)
    return _Entry(name, shape, kind, nbytes, offset)


def _checked_size(cursor: Cursor, name: str, shape: tuple[int, ...], kind: GGMLType) -> int:
    if 0 in shape:
        raise cursor.error(f"has a dimension of size 0: {shape}", name)
    row = shape[-1] if shape else 1
    if row % kind.block_size:
        raise cursor.error(
            f"has rows of {row} elements, which is not a multiple of {kind.name}'s block of {kind.block_size}",
            name,
        )
    nbytes = prod(shape) // kind.block_size * kind.type_size  # Python's integers cannot overflow
    if nbytes > cursor.end:
        raise cursor.error(
            f"of shape {shape} takes {nbytes} bytes, but the whole file has {cursor.end}: is it truncated?",
            name,
        )
    return nbytes


def _check_placement(cursor: Cursor, entries: list[_Entry], start: int, alignment: int) -> None:
    """The tensors must follow each other, padded to the alignment: no gap, no overlap, nothing behind."""
    expected = 0
    for entry in sorted(entries, key=lambda e: e.offset):
        if entry.offset != expected:
            fault = "overlaps the tensor before it" if entry.offset < expected else "leaves a gap before it"
            raise cursor.error(f"{fault}: it starts at offset {entry.offset}, not at {expected}", entry.name)
        end = start + entry.offset + entry.nbytes
        if end > cursor.end:
            raise cursor.error(
                f"ends at byte {end}, but the file has only {cursor.end}: is it truncated?", entry.name
            )
        expected += pad(entry.nbytes, alignment)
    if cursor.end > start + expected:
        raise cursor.error(f"{cursor.end - start - expected} bytes follow the last tensor")
