"""GGUF files that hold only a vocabulary, written for a test with the reference `gguf` package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf

Value = str | int | float | bool | Sequence[str] | Sequence[int] | Sequence[float]


def write_gguf(
    path: Path, metadata: Mapping[str, Value], name: str = "test", architecture: str = "test"
) -> Path:
    """Write `metadata`, with `tokenizer.ggml.` before each key that has no dot."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    for key, value in metadata.items():
        _add(writer, key if "." in key else f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
