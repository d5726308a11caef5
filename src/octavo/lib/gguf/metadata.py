"""GGUF metadata: a cursor that stays inside the file, and a mapping that decodes an array at first access."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap

from octavo.lib.errors import CheckpointError
from octavo.lib.gguf.layout import NUMBER_FORMATS, ValueType

# No real file comes near these; they keep a damaged count or length from costing time or memory.
MAX_KEYS = 1 << 16
MAX_KEY_BYTES = (1 << 16) - 1
MAX_STRING_BYTES = 1 << 26
MAX_ARRAY_ELEMENTS = 1 << 22  # all arrays of a file together

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """Reads forward through the head of a file; every read is checked against the file's end first."""

    def __init__(self, data: mmap, file: str, position: int = 0) -> None:
        self.data = data
        self.file = file
        self.position = position
        self.end = len(data)

    def error(self, message: str, tensor: str | None = None) -> CheckpointError:
        return CheckpointError(message, file=self.file, tensor=tensor)

    def take(self, size: int, what: str) -> int:
        """Step over `size` bytes; returns where they start.

        Raises:
            CheckpointError: The file ends before them.
        """
        start = self.position
        if size > self.end - start:
            raise self.error(
                f"the file ends at byte {self.end}, inside {what} ({size} bytes from byte {start})"
            )
        self.position = start + size
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.data, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.data, self.take(8, what))[0])

    def count(self, what: str, limit: int, least_bytes: int) -> int:
        """A 64-bit count of things of at least `least_bytes` each, checked against `limit` and the bytes left."""
        count = self.u64(what)
        limit = min(limit, (self.end - self.position) // least_bytes)
        if count > limit:
            raise self.error(f"{what} is {count}, but at most {limit} are possible here")
        return count

    def text(self, what: str, limit: int) -> str:
        """A length-prefixed UTF-8 string of at most `limit` bytes."""
        size = self.u64(f"the length of {what}")
        if size > limit:
            raise self.error(f"{what} is {size} bytes long; the limit is {limit}")
        start = self.take(size, what)
        try:
            return self.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.error(f"{what} is not valid UTF-8 ({e.reason} at byte {start + e.start})") from None


@dataclass(frozen=True, slots=True)
class LazyArray:
    """An array with checked bounds whose `length` elements are still bytes of the file, at [start, stop)."""

    key: str
    type: ValueType
    length: int
    start: int
    stop: int

    def decode(self, data: mmap, file: str) -> list[object]:
        """The elements as Python values.

        Raises:
            CheckpointError: A string is not valid UTF-8.
        """
        raw = data[self.start : self.stop]
        if self.type is ValueType.STRING:
            return self._decode_strings(raw, file)
        if self.type is ValueType.BOOL:
            return [byte == 1 for byte in raw]
        return list(struct.unpack(f"<{self.length}{NUMBER_FORMATS[self.type]}", raw))

    def _decode_strings(self, raw: bytes, file: str) -> list[object]:
        unpack = _U64.unpack_from
        strings: list[object] = []
        position = 0
        try:
            for _ in range(self.length):
                (size,) = unpack(raw, position)
                position += 8
                strings.append(raw[position : position + size].decode())
                position += size
        except UnicodeDecodeError as e:
            where = f"element {len(strings)} of metadata key {self.key!r}"
            raise CheckpointError(f"{where} is not valid UTF-8 ({e.reason})", file=file) from None
        return strings


class Metadata(Mapping[str, object]):
    """The key-value section. Scalars are ready; an array becomes a list at its first access and is kept."""

    def __init__(self, data: mmap, file: str, values: dict[str, object]) -> None:
        self._data = data
        self._file = file
        self._values = values

    def __getitem__(self, key: str) -> object:
        value = self._values[key]
        if isinstance(value, LazyArray):
            value = self._values[key] = value.decode(self._data, self._file)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values  # Mapping's own would decode the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def array_length(self, key: str) -> int:
        """Number of elements of an array, without decoding it; -1 where the value is no array.

        Raises:
            KeyError: There is no such key.
        """
        value = self._values[key]
        if isinstance(value, LazyArray):
            return value.length
        return len(value) if isinstance(value, list) else -1


class MetadataReader:
    """Reads the key-value section at a cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._elements_left = MAX_ARRAY_ELEMENTS

    def read(self, count: int) -> Metadata:
        """Read `count` pairs.

        Raises:
            CheckpointError: A length, type or value that cannot be meant, or a key that comes twice.
        """
        cursor = self._cursor
        values: dict[str, object] = {}
        for index in range(count):
            key = cursor.text(f"metadata key {index}", MAX_KEY_BYTES)
            if not key:
                raise cursor.error(f"metadata key {index} is empty")
            if key in values:
                raise cursor.error(f"metadata key {key!r} occurs twice")
            values[key] = self._value(key)
        return Metadata(cursor.data, cursor.file, values)

    def _type(self, what: str) -> ValueType:
        number = self._cursor.u32(f"the type of {what}")
        try:
            return ValueType(number)
        except ValueError:
            raise self._cursor.error(f"{what} has the unknown type {number}") from None

    def _value(self, key: str) -> object:
        what = f"metadata key {key!r}"
        kind = self._type(what)
        if kind is ValueType.ARRAY:
            return self._array(key, what)
        if kind is ValueType.STRING:
            return self._cursor.text(what, MAX_STRING_BYTES)
        if kind is ValueType.BOOL:
            return self._bool(what)
        number = struct.Struct("<" + NUMBER_FORMATS[kind])
        value: object = number.unpack_from(self._cursor.data, self._cursor.take(number.size, what))[0]
        return value

    def _bool(self, what: str) -> bool:
        byte = self._cursor.data[self._cursor.take(1, what)]
        if byte > 1:
            raise self._cursor.error(f"{what} is a bool of value {byte}")
        return byte == 1

    def _array(self, key: str, what: str) -> LazyArray:
        kind = self._type(f"the elements of {what}")
        if kind is ValueType.ARRAY:
            raise self._cursor.error(f"{what} is an array of arrays, which no GGUF version in use has")
        width = (
            8
            if kind is ValueType.STRING
            else 1
            if kind is ValueType.BOOL
            else struct.calcsize(NUMBER_FORMATS[kind])
        )
        length = self._cursor.count(f"the length of {what}", self._elements_left, width)
        self._elements_left -= length
        start = self._cursor.position
        if kind is ValueType.STRING:
            self._skip_strings(length, what)
        else:
            self._cursor.take(length * width, what)
        stop = self._cursor.position
        # translate() with a deletion set finds a stray byte at C speed.
        if kind is ValueType.BOOL and self._cursor.data[start:stop].translate(None, b"\x00\x01"):
            raise self._cursor.error(f"{what} holds a bool that is neither 0 nor 1")
        return LazyArray(key, kind, length, start, stop)

    def _skip_strings(self, length: int, what: str) -> None:
        # The hot loop of opening a file (a vocabulary and its merges): one call per element.
        data, end, unpack = self._cursor.data, self._cursor.end, _U64.unpack_from
        position, last = self._cursor.position, self._cursor.end - 8
        for index in range(length):
            if position > last:
                raise self._cursor.error(f"the file ends inside element {index} of {what}")
            position += 8 + unpack(data, position)[0]
            if position > end:
                raise self._cursor.error(f"element {index} of {what} reaches beyond the end of the file")
        self._cursor.position = position
