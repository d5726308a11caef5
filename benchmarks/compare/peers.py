"""How each peer is started and asked."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clients import random_prompt
from benchmarks.compare.sampling import ANSWER, CLIENTS, FIGURES, PREFILL, PROMPT, Peer
from benchmarks.measure import quiet_environment

WORKERS = Path(__file__).with_name("workers")
TCMALLOC = [
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
]


@dataclass(frozen=True)
class Job:
    """What a peer is to load."""

    model: Path
    threads: int
    vocabulary: int
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)


class Worker:
    """A peer in a process of its own, under its own Python, that answers through pipes (workers/protocol.py)."""

    def __init__(self, name: str, setting: str, job: Job, python: str, environment: dict[str, str]) -> None:
        self.name, self.setting = name, setting
        self._vocabulary = job.vocabulary
        options = json.dumps({"model": str(job.model), "threads": job.threads} | job.options)
        self._process = subprocess.Popen(
            [python, str(WORKERS / f"{name}_worker.py"), options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=quiet_environment() | environment,
        )
        self.ready_seconds = self._answer()["ready_seconds"]
        self.speed("prefill", random.Random(0))

    def speed(self, figure: str, rng: random.Random) -> float:
        return FIGURES[figure](self._seconds, lambda length: random_prompt(rng, length, self._vocabulary))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _seconds(self, prompts: list[list[int]], tokens: int) -> float:
        assert self._process.stdin is not None
        print(json.dumps({"prompts": prompts, "tokens": tokens}), file=self._process.stdin, flush=True)
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(f"{self.name} ({self.setting}) ended with status {self._process.wait()}")
        return dict(json.loads(line))


class PeerFailed(RuntimeError):
    """A peer cannot do what it was asked; the table leaves it out."""


class LlamaCpp:
    """llama.cpp's own benches: no HTTP, no tokenizer, all prompts of a batch start together. Its best case."""

    name = "llamacpp"

    def __init__(self, setting: str, job: Job) -> None:
        self.setting = setting
        self._binaries = job.folder / "llamacpp" / "build" / "bin"
        self._common = ["-m", str(job.model), "-t", str(job.threads)]
        self._flash: bool = job.options["flash_attention"]

    def speed(self, figure: str, rng: random.Random) -> float:
        if figure == "clients":
            return self._batch()
        shape = {"prefill": ["-p", PREFILL, "-n", 0], "decode": ["-p", 0, "-n", ANSWER, "-d", PROMPT]}[figure]
        flags = [*map(str, shape), "-fa", str(int(self._flash)), "-r", "1", "-o", "json"]
        return float(json.loads(self._output("llama-bench", flags))[0]["avg_ts"])

    def close(self) -> None:
        """Nothing stays loaded."""

    def _batch(self) -> float:
        shape = ["-c", CLIENTS * (PROMPT + ANSWER), "-npp", PROMPT, "-ntg", ANSWER, "-npl", CLIENTS]
        flags = [*map(str, shape), "-fa", "on" if self._flash else "off", "--output-format", "jsonl"]
        lines = self._output("llama-batched-bench", flags).splitlines()
        row = next(json.loads(line) for line in lines if line.startswith("{"))
        return float(CLIENTS * ANSWER / row["t"])

    def _output(self, program: str, flags: list[str]) -> str:
        command = [str(self._binaries / program), *self._common, *flags]
        result = subprocess.run(command, capture_output=True, text=True, env=quiet_environment())
        if result.returncode:
            raise PeerFailed(f"{program} ended with status {result.returncode}: {result.stderr[-300:]}")
        return result.stdout


def _octavo(setting: str, job: Job) -> Peer:
    source = str(Path(__file__).resolve().parents[2] / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return Worker("octavo", setting, job, sys.executable, {"PYTHONPATH": path})


def _openvino(setting: str, job: Job) -> Peer:
    return Worker("openvino", setting, job, str(job.folder / "openvino/bin/python"), {})


def _vllm(setting: str, job: Job) -> Peer:
    home = job.folder / "vllm"
    preloads = [str(home / "lib" / "libiomp5.so"), *(path for path in TCMALLOC if Path(path).exists())][:2]
    environment = {
        "LD_PRELOAD": ":".join(preloads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{job.threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return Worker("vllm", setting, job, str(home / "bin/python"), environment)


def _transformers(setting: str, job: Job) -> Peer:
    return Worker("transformers", setting, job, sys.executable, {"HF_HUB_OFFLINE": "1"})


START: dict[str, Callable[[str, Job], Peer]] = {
    "octavo": _octavo,
    "openvino": _openvino,
    "llamacpp": LlamaCpp,
    "vllm": _vllm,
    "transformers": _transformers,
}


def installed(name: str, folder: Path) -> bool:
    """Octavo and transformers live in this environment; the others were put into their folders."""
    return name in ("octavo", "transformers") or (folder / name).is_dir()
