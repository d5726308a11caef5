"""How long it takes to read the metadata of a GGUF file with a vocabulary of 150,000 tokens.

    python -m benchmarks.gguf_metadata [FILE.gguf ...]

Without files a synthetic one is measured: tokens, merges, scores and types, 150,000 each. The goal is under 0.5 s.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from pathlib import Path

from octavo.lib.gguf import GGUFFile, ValueType

VOCABULARY = 150_000
REPEATS = 5


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def array(key: str, kind: ValueType, elements: list[bytes]) -> bytes:
    head = struct.pack("<IIQ", ValueType.ARRAY, kind, len(elements))
    return text(key) + head + b"".join(elements)


def write_synthetic(path: Path) -> None:
    """A file that holds a vocabulary and nothing else."""
    # Lengths and scripts as in real vocabularies: mostly short, some not ASCII.
    words = [f"Ġ{i:x}é" if i % 7 == 0 else f"Ġword{i}" for i in range(VOCABULARY)]
    keys = [
        text("general.architecture") + struct.pack("<I", ValueType.STRING) + text("llama"),
        array("tokenizer.ggml.tokens", ValueType.STRING, [text(word) for word in words]),
        array("tokenizer.ggml.merges", ValueType.STRING, [text(f"{word[:2]} {word[2:]}") for word in words]),
        array("tokenizer.ggml.scores", ValueType.FLOAT32, [struct.pack("<f", -i) for i in range(VOCABULARY)]),
        array("tokenizer.ggml.token_type", ValueType.INT32, [struct.pack("<i", 1)] * VOCABULARY),
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys))


def measure(path: Path) -> tuple[float, float]:
    """Best of several runs: seconds to open and check the file, and to decode every value."""
    opened = decoded = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        with GGUFFile.open(path) as file:
            middle = time.perf_counter()
            dict(file.metadata)
            end = time.perf_counter()
        opened, decoded = min(opened, middle - start), min(decoded, end - middle)
    return opened, decoded


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(arg) for arg in sys.argv[1:]]
        if not paths:
            paths = [Path(folder) / "synthetic-150k.gguf"]
            write_synthetic(paths[0])
        for path in paths:
            opened, decoded = measure(path)
            print(
                f"{path.name}: open {opened:.3f} s, decode all {decoded:.3f} s, together {opened + decoded:.3f} s"
            )


if __name__ == "__main__":
    main()
