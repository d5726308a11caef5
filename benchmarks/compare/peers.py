"""How each peer is started and asked."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
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
    """A peer at a setting, and what it is to load."""

    peer: str
    setting: str
    model: Path
    threads: int
    vocabulary: int
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)


class Worker:
    """A peer in a process of its own, under its own Python, that answers through pipes (workers/protocol.py)."""

    def __init__(self, job: Job, python: str, environment: dict[str, str]) -> None:
        self.name, self.setting = job.peer, job.setting
        self._vocabulary = job.vocabulary
        with contextlib.ExitStack() as opened:
            self._complaints = opened.enter_context(TemporaryFile("w+"))
            self._process = self._spawned(job, python, environment)
            opened.callback(self._end)
            self.ready_seconds = self._answer()["ready_seconds"]
            self.speed("prefill", random.Random(0))
            self._opened = opened.pop_all()

    def _spawned(self, job: Job, python: str, environment: dict[str, str]) -> subprocess.Popen[str]:
        options = json.dumps({"model": str(job.model), "threads": job.threads} | job.options)
        try:
            return subprocess.Popen(
                [python, str(WORKERS / f"{job.peer}_worker.py"), options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                text=True,
                env=quiet_environment() | environment,
            )
        except OSError as error:
            raise PeerFailed(f"{job.peer}: {error}; `install` again?") from error

    def speed(self, figure: str, rng: random.Random) -> float:
        return FIGURES[figure](self._seconds, lambda length: random_prompt(rng, length, self._vocabulary))

    def close(self) -> None:
        self._opened.close()

    def _end(self) -> None:
        """A worker ends with its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _seconds(self, prompts: list[list[int]], tokens: int) -> float:
        assert self._process.stdin is not None
        # A worker that has died takes no more work; that it gives no answer is told below.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"prompts": prompts, "tokens": tokens}), file=self._process.stdin, flush=True)
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._complaints.seek(0)
            last = self._complaints.read()[-300:]
            raise PeerFailed(f"{self.name} ({self.setting}) ended with status {status}: {last}")
        return dict(json.loads(line))


class PeerFailed(RuntimeError):
    """A peer cannot do what it was asked; the table leaves it out."""


class LlamaCpp:
    """llama.cpp's own benches: no HTTP, no tokenizer, all prompts of a batch start together. Its best case."""

    name = "llamacpp"

    def __init__(self, job: Job) -> None:
        self.setting = job.setting
        self._binaries = job.folder / "llamacpp" / "build" / "bin"
        self._common = ["-m", str(job.model), "-t", str(job.threads)]
        self._flash: bool = job.options["flash_attention"]

    def speed(self, figure: str, rng: random.Random) -> float:
        if figure in CLIENTS:
            return self._batch(CLIENTS[figure])
        shape = {"prefill": ["-p", PREFILL, "-n", 0], "decode": ["-p", 0, "-n", ANSWER, "-d", PROMPT]}[figure]
        flags = [*map(str, shape), "-fa", str(int(self._flash)), "-r", "1", "-o", "json"]
        return float(json.loads(self._output("llama-bench", flags))[0]["avg_ts"])

    def close(self) -> None:
        """Nothing stays loaded."""

    def _batch(self, clients: int) -> float:
        shape = ["-c", clients * (PROMPT + ANSWER), "-npp", PROMPT, "-ntg", ANSWER, "-npl", clients]
        flags = [*map(str, shape), "-fa", "on" if self._flash else "off", "--output-format", "jsonl"]
        lines = self._output("llama-batched-bench", flags).splitlines()
        row = next(json.loads(line) for line in lines if line.startswith("{"))
        return float(clients * ANSWER / row["t"])

    def _output(self, program: str, flags: list[str]) -> str:
        command = [str(self._binaries / program), *self._common, *flags]
        result = subprocess.run(command, capture_output=True, text=True, env=quiet_environment())
        if result.returncode:
            raise PeerFailed(f"{program} ended with status {result.returncode}: {result.stderr[-300:]}")
        return result.stdout


def _octavo(job: Job) -> Peer:
    source = str(Path(__file__).resolve().parents[2] / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return Worker(job, sys.executable, {"PYTHONPATH": path})


def _openvino(job: Job) -> Peer:
    return Worker(job, str(job.folder / "openvino/bin/python"), {})


def _vllm(job: Job) -> Peer:
    home = job.folder / "vllm"
    preloads = [str(home / "lib" / "libiomp5.so"), *(path for path in TCMALLOC if Path(path).exists())][:2]
    environment = {
        "LD_PRELOAD": ":".join(preloads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{job.threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return Worker(job, str(home / "bin/python"), environment)


def _transformers(job: Job) -> Peer:
    return Worker(job, sys.executable, {"HF_HUB_OFFLINE": "1"})


START: dict[str, Callable[[Job], Peer]] = {
    "octavo": _octavo,
    "openvino": _openvino,
    "llamacpp": LlamaCpp,
    "vllm": _vllm,
    "transformers": _transformers,
}


def installed(name: str, folder: Path) -> bool:
    """Octavo and transformers live in this environment; the others were put into their folders."""
    return name in ("octavo", "transformers") or (folder / name).is_dir()
