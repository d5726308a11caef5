"""Damaged files: each either loads or is refused by a `CheckpointError` that names the file; never slow, never large."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from tests.unit.weights.checkpoint_files import (
    GGUFImage,
    TensorSpec,
    array,
    f32,
    f32_tensor,
    key,
    safetensors_bytes,
    small_gguf,
    string_key,
    strings_key,
)

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.lib.gguf import GGMLType, GGUFFile, ValueType
from octavo.weights.gguf import GGUFSource
from octavo.weights.loader import open_source
from octavo.weights.safetensors import INDEX
from octavo.weights.source import WeightSource

TRUNCATIONS = 300
FLIPS = 2000
SECONDS = 5.0
BYTES = 8 << 20


def _model_gguf(layers: int = 2, vocabulary: int = 12) -> GGUFImage:
    """The shape of a real file: settings, a vocabulary with merges, scores and types, layers of several formats."""
    image = small_gguf()
    tokens = [f"token{i}" for i in range(vocabulary)]
    scores = [struct.pack("<f", -i) for i in range(vocabulary)]
    kinds = [struct.pack("<i", 1) for _ in range(vocabulary)]
    image.keys += [
        strings_key("tokenizer.ggml.tokens", tokens),
        strings_key("tokenizer.ggml.merges", [f"to ken{i}" for i in range(vocabulary)]),
        key("tokenizer.ggml.scores", ValueType.ARRAY, array(ValueType.FLOAT32, scores)),
        key("tokenizer.ggml.token_type", ValueType.ARRAY, array(ValueType.INT32, kinds)),
        string_key(
            "tokenizer.chat_template", "{% for message in messages %}{{ message.content }}{% endfor %}"
        ),
    ]
    for layer in range(layers):
        image.tensors += [
            f32_tensor(f"blk.{layer}.attn_norm.weight", (8,), [1.0] * 8),
            TensorSpec(f"blk.{layer}.ffn_up.weight", (32, 4), GGMLType.Q4_0, bytes(4 * 18)),
            TensorSpec(f"blk.{layer}.ffn_down.weight", (256, 2), GGMLType.Q6_K, bytes(2 * 210)),
        ]
    return image


def _model_safetensors() -> bytes:
    tensors: dict[str, tuple[str, list[int], bytes]] = {}
    for layer in range(6):
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = ("F32", [4], f32(1, 1, 1, 1))
        tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = ("BF16", [8, 4], bytes(64))
    return safetensors_bytes(tensors, {"format": "pt"})


def _open(path: Path) -> WeightSource:
    """A source as a loader opens it; of a GGUF file, all metadata are read too, as a tokenizer would."""
    if path.suffix != ".gguf":
        return open_source(path)
    file = GGUFFile.open(path)
    dict(file.metadata)
    return GGUFSource(file)


def _read_everything(path: Path) -> None:
    source = _open(path)
    for name in source.names():
        with contextlib.suppress(UnsupportedModelError):  # another type of the format, refused by name
            source.get(name)
    source.close()


def _outcome(path: Path) -> CheckpointError | None:
    """The error of reading `path`, if any; anything but a `CheckpointError` fails the test, as does a long time."""
    started = time.monotonic()
    error = None
    try:
        _read_everything(path)
    except CheckpointError as e:
        error = e
    assert time.monotonic() - started < SECONDS
    assert error is None or (error.file is not None and error.file in str(error))
    return error


@contextlib.contextmanager
def _bounded_memory(measure: bool) -> Iterator[None]:
    """Fails if Python allocates much inside; measuring is slow, so most cases go without."""
    if not measure:
        yield
        return
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < BYTES


def _flip(raw: bytes, bit: int) -> bytes:
    damaged = bytearray(raw)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def _check_flips(path: Path, raw: bytes, head: int, seed: int) -> int:
    """Flip bits of the first `head` bytes one by one; returns how many were refused."""
    bits = random.Random(seed).sample(range(8 * head), FLIPS)
    refused = 0
    path.write_bytes(raw)
    with path.open("r+b", buffering=0) as stream:
        for case, bit in enumerate(bits):
            at = bit // 8
            os.pwrite(stream.fileno(), bytes([raw[at] ^ 1 << bit % 8]), at)
            with _bounded_memory(case % 20 == 0):
                error = _outcome(path)
            os.pwrite(stream.fileno(), raw[at : at + 1], at)
            assert error is None or error.file == str(path)
            refused += error is not None
    return refused


def _check_truncations(path: Path, raw: bytes, content: int, seed: int) -> None:
    """Cut within the first `content` bytes, where something is always lost: each cut must be refused."""
    for size in random.Random(seed).sample(range(content), min(TRUNCATIONS, content)):
        path.write_bytes(raw[:size])
        error = _outcome(path)
        assert error is not None, f"cut to {size} of {content} bytes and not noticed"
        assert error.file == str(path)


def test_gguf_bit_flips(tmp_path: Path) -> None:
    image = _model_gguf()
    refused = _check_flips(tmp_path / "a.gguf", image.build(), len(image.head()), seed=1)
    assert refused > FLIPS // 3  # most of the rest fall into texts and numbers, where any value is a value


def test_gguf_truncations(tmp_path: Path) -> None:
    image = _model_gguf()
    raw = image.build()
    padding = -len(image.tensors[-1].data) % 32
    _check_truncations(tmp_path / "a.gguf", raw, len(raw) - padding, seed=2)
    _check_truncations(tmp_path / "a.gguf", raw, len(image.head()), seed=3)


def test_safetensors_bit_flips(tmp_path: Path) -> None:
    raw = _model_safetensors()
    head = 8 + int.from_bytes(raw[:8], "little")
    refused = _check_flips(tmp_path / "a.safetensors", raw, head, seed=4)
    assert refused > FLIPS // 4


def test_safetensors_truncations(tmp_path: Path) -> None:
    raw = _model_safetensors()
    _check_truncations(tmp_path / "a.safetensors", raw, len(raw), seed=5)


def test_index_damage(tmp_path: Path) -> None:
    """An index with flipped bits or cut short: the error names the index, or the shard that it misnames."""
    shard = tmp_path / "model-00001-of-00001.safetensors"
    shard.write_bytes(_model_safetensors())
    source = open_source(shard)
    index = tmp_path / INDEX
    raw = json.dumps({"metadata": {}, "weight_map": dict.fromkeys(source.names(), shard.name)}).encode()
    source.close()
    rng = random.Random(6)
    damaged = [raw[: rng.randrange(len(raw))] for _ in range(100)]
    damaged += [_flip(raw, bit) for bit in rng.sample(range(8 * len(raw)), 500)]
    for variant in damaged:
        index.write_bytes(variant)
        error = _outcome(tmp_path)
        assert error is None or Path(error.file or "").parent == tmp_path
    index.write_bytes(raw)
    assert _outcome(tmp_path) is None
