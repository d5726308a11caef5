"""Builders of tiny checkpoint files, byte by byte, so that a test can also write what no honest writer would."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo.lib.gguf import GGMLType, ValueType

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return U64.pack(len(raw)) + raw


def array(kind: ValueType, elements: Sequence[bytes]) -> bytes:
    """The bytes of an array's value; `elements` are ready-made."""
    return U32.pack(kind) + U64.pack(len(elements)) + b"".join(elements)


def key(name: str | bytes, kind: ValueType, value: bytes) -> bytes:
    return text(name) + U32.pack(kind) + value


def string_key(name: str, value: str) -> bytes:
    return key(name, ValueType.STRING, text(value))


def u32_key(name: str, value: int) -> bytes:
    return key(name, ValueType.UINT32, U32.pack(value))


def strings_key(name: str, values: Sequence[str | bytes]) -> bytes:
    return key(name, ValueType.ARRAY, array(ValueType.STRING, [text(value) for value in values]))


@dataclass
class TensorSpec:
    """A tensor to write; `dims` are in GGUF's order (innermost first). None: offset and data as an honest writer."""

    name: str | bytes
    dims: Sequence[int]
    kind: int
    data: bytes
    offset: int | None = None


@dataclass
class GGUFImage:
    """The parts of a GGUF file; fields set to a value lie where an honest writer would count."""

    keys: list[bytes] = field(default_factory=list)
    tensors: list[TensorSpec] = field(default_factory=list)
    version: int = 3
    alignment: int = 32
    magic: bytes = b"GGUF"
    key_count: int | None = None
    tensor_count: int | None = None
    trailing: bytes = b""

    def head(self) -> bytes:
        """Header, metadata and tensor table, unpadded."""
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        key_count = len(self.keys) if self.key_count is None else self.key_count
        head = self.magic + U32.pack(self.version) + U64.pack(tensor_count) + U64.pack(key_count)
        return head + b"".join(self.keys) + self._table()

    def build(self) -> bytes:
        head = self.head()
        body = b"".join(self._padded(tensor.data) for tensor in self.tensors)
        return (self._padded(head) if self.tensors else head) + body + self.trailing

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path

    def _padded(self, raw: bytes) -> bytes:
        return raw + bytes(-len(raw) % self.alignment)

    def _table(self) -> bytes:
        table, offset = b"", 0
        for t in self.tensors:
            at = offset if t.offset is None else t.offset
            dims = b"".join(U64.pack(size) for size in t.dims)
            table += text(t.name) + U32.pack(len(t.dims)) + dims + U32.pack(t.kind) + U64.pack(at)
            offset += len(self._padded(t.data))
        return table


def f32_tensor(name: str, dims: Sequence[int], values: Sequence[float]) -> TensorSpec:
    return TensorSpec(name, dims, GGMLType.F32, struct.pack(f"<{len(values)}f", *values))


def small_gguf() -> GGUFImage:
    """Two tensors and one value of every kind."""
    scalars = [
        (ValueType.UINT8, "<B", 200),
        (ValueType.INT8, "<b", -3),
        (ValueType.UINT16, "<H", 65535),
        (ValueType.INT16, "<h", -300),
        (ValueType.UINT32, "<I", 4_000_000_000),
        (ValueType.INT32, "<i", -70_000),
        (ValueType.UINT64, "<Q", 2**63),
        (ValueType.INT64, "<q", -(2**40)),
        (ValueType.FLOAT32, "<f", 0.5),
        (ValueType.FLOAT64, "<d", 0.1),
        (ValueType.BOOL, "<B", 1),
    ]
    keys = [string_key("general.architecture", "toy")]
    keys += [key(f"x.{kind.name.lower()}", kind, struct.pack(fmt, value)) for kind, fmt, value in scalars]
    keys += [
        strings_key("x.strings", ["", "a", "Ünï", "<|end|>"]),
        key("x.floats", ValueType.ARRAY, array(ValueType.FLOAT32, [struct.pack("<f", v) for v in (1.5, -2)])),
        key("x.bools", ValueType.ARRAY, array(ValueType.BOOL, [b"\x00", b"\x01"])),
        key("x.nothing", ValueType.ARRAY, array(ValueType.INT32, [])),
    ]
    quantised = TensorSpec("blk.0.attn_q.weight", (64, 2), GGMLType.Q8_0, bytes(range(136)))
    return GGUFImage(keys, [f32_tensor("output_norm.weight", (3,), (1, 2, 3)), quantised])


def safetensors_bytes(
    tensors: Mapping[str, tuple[str, Sequence[int], bytes]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """An honest safetensors file: name -> (dtype, shape, data)."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        body += data
    return raw_safetensors(json.dumps(header).encode(), body)


def raw_safetensors(header: bytes, body: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return U64.pack(len(header)) + header + body


def f32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def small_safetensors() -> bytes:
    return safetensors_bytes(
        {
            "model.embed_tokens.weight": ("F32", [2, 3], f32(1, 2, 3, 4, 5, 6)),
            "model.norm.weight": ("BF16", [3], bytes(6)),
            "model.layers.0.mlp.up_proj.weight": ("F16", [2, 2], bytes(8)),
        },
        {"format": "pt"},
    )
