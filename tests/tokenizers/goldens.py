"""llama.cpp's own golden cases, out of the pinned source archive of llama-cpp-python, which carries them (MIT)."""

from __future__ import annotations

import fcntl
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import assets

SOURCE = "llama-cpp-python==0.3.36"
_SEPARATOR = "\n__ggml_vocab_test__\n"


def models_folder() -> Path:
    """llama.cpp's `models` folder; the test is skipped if it cannot be had."""
    target = assets.cache_dir() / "llama_cpp_models"
    with open(assets.cache_dir() / "llama_cpp_models.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            _unpack(_archive(), target)
            (target / "done").touch()
    return target


def _archive() -> Path:
    try:
        return assets.download_sdist(SOURCE)
    except OSError as e:
        pytest.skip(f"{SOURCE} cannot be had: {e}")
    except Exception as e:  # pip failed: no network, most likely
        pytest.skip(f"{SOURCE} cannot be downloaded: {e}")


def _unpack(archive: Path, target: Path) -> None:
    marker = "/vendor/llama.cpp/models/"
    with tarfile.open(archive) as tar:
        for member in tar:
            _, found, name = member.name.partition(marker)
            content = tar.extractfile(member) if found and member.isfile() else None
            if content is not None:
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())


def golden_cases(vocabulary: Path) -> Iterator[tuple[str, list[int]]]:
    """Text and ids of each case of a vocabulary."""
    texts = Path(f"{vocabulary}.inp").read_bytes().decode("utf-8").split(_SEPARATOR)
    lines = Path(f"{vocabulary}.out").read_text(encoding="utf-8").split("\n")[: len(texts)]
    for text, line in zip(texts, lines, strict=True):
        yield text, [int(token) for token in line.split()]
