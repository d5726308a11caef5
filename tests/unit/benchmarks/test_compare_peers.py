"""How peers are asked: the workers' protocol without a model, llama.cpp's output without llama.cpp."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.compare import peers
from benchmarks.compare.peers import Job, LlamaCpp, PeerFailed, Worker
from benchmarks.compare.sampling import ANSWER, PREFILL, PROMPT

PROTOCOL = Path(peers.__file__).with_name("workers")
# Writes what it was asked beside its model, and noise where answers go.
WORKER = """
import json, os, sys
from protocol import serve

def load(options):
    print("libraries talk")
    if options.get("broken"):
        sys.exit("no such model")
    log = open(options["model"], "w", buffering=1)
    log.write(json.dumps(options) + "\\n")
    def generate(prompts, tokens):
        os.write(1, b"so do kernels\\n")
        log.write(json.dumps([[len(prompt) for prompt in prompts], tokens, max(map(max, prompts))]) + "\\n")
        if tokens > 1 and options.get("mortal"):
            os._exit(3)
        return len(prompts) * tokens - options.get("missing", 0) * (tokens > 1)
    return generate

serve(load)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    (tmp_path / "fake_worker.py").write_text(WORKER)
    monkeypatch.setattr(peers, "WORKERS", tmp_path)
    return Job("fake", "fast", tmp_path / "log", 2, 1000, tmp_path, {})


@contextmanager
def started(job: Job, **options: int) -> Iterator[Worker]:
    job.options.update(options)
    worker = Worker(job, sys.executable, {"PYTHONPATH": str(PROTOCOL)})
    try:
        yield worker
    finally:
        worker.close()


def asked(job: Job) -> list[object]:
    return [json.loads(line) for line in job.model.read_text().splitlines()]


def test_a_worker_is_warmed_up_and_asked(job: Job) -> None:
    with started(job) as worker:
        assert (worker.name, worker.setting) == ("fake", "fast")
        assert worker.ready_seconds >= 0
        assert worker.speed("clients", random.Random(1)) > 0
    options, warm_up, clients = asked(job)
    assert options == {"model": str(job.model), "threads": 2}
    assert warm_up[:2] == [[PREFILL], 1]  # type: ignore[index]
    assert clients[:2] == [[PROMPT] * 32, ANSWER]  # type: ignore[index]
    assert max(warm_up[2], clients[2]) < job.vocabulary  # type: ignore[index]


def test_what_a_worker_said_last_is_why_it_failed(job: Job) -> None:
    with (
        pytest.raises(PeerFailed, match=r"(?s)fake \(fast\) ended with status 1: .*no such model"),
        started(job, broken=1),
    ):
        pass


def test_a_worker_that_dies_fails_now_and_later(job: Job) -> None:
    with started(job, mortal=1) as worker:
        for _ in range(3):
            with pytest.raises(PeerFailed, match="status 3"):
                worker.speed("clients", random.Random(1))


def test_a_worker_that_makes_too_few_tokens_fails(job: Job) -> None:
    message = f"{32 * ANSWER - 1} tokens came back where 32 x {ANSWER} were asked for"
    with started(job, missing=1) as worker, pytest.raises(PeerFailed, match=message):
        worker.speed("clients", random.Random(1))


def test_a_half_installed_peer_fails(job: Job) -> None:
    with pytest.raises(PeerFailed, match="install"):
        Worker(job, str(job.folder / "bin/python"), {})


def llama(folder: Path, program: str, script: str, flash: bool = False) -> LlamaCpp:
    binary = folder / "llamacpp/build/bin" / program
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\necho "$@" > {folder}/arguments\n{script}\n')
    binary.chmod(0o755)
    return LlamaCpp(Job("llamacpp", "", Path("m.gguf"), 2, 1000, folder, {"flash_attention": flash}))


@pytest.mark.parametrize(
    ("figure", "shape"), [("prefill", f"-p {PREFILL} -n 0"), ("decode", f"-p 0 -n {ANSWER} -d {PROMPT}")]
)
def test_llama_bench(figure: str, shape: str, tmp_path: Path) -> None:
    peer = llama(tmp_path, "llama-bench", 'echo loading >&2; echo \'[{"n_prompt": 512, "avg_ts": 123.5}]\'')
    assert peer.speed(figure, random.Random(0)) == 123.5
    assert (tmp_path / "arguments").read_text() == f"-m m.gguf -t 2 {shape} -fa 0 -r 1 -o json\n"


@pytest.mark.parametrize(("figure", "count"), [("clients", 32), ("clients16", 16)])
def test_llama_batched_bench(figure: str, count: int, tmp_path: Path) -> None:
    """`t` is of prompts and answers together; other lines than the row of JSON are talk."""
    peer = llama(
        tmp_path, "llama-batched-bench", 'echo; echo talk; echo \'{"pp": 128, "t": 16.0}\'', flash=True
    )
    assert peer.speed(figure, random.Random(0)) == count * ANSWER / 16
    shape = f"-c {count * (PROMPT + ANSWER)} -npp {PROMPT} -ntg {ANSWER} -npl {count}"
    assert (tmp_path / "arguments").read_text() == f"-m m.gguf -t 2 {shape} -fa on --output-format jsonl\n"


def test_llama_that_fails(tmp_path: Path) -> None:
    peer = llama(tmp_path, "llama-bench", "echo cannot load >&2; exit 7")
    with pytest.raises(PeerFailed, match="llama-bench ended with status 7: cannot load"):
        peer.speed("prefill", random.Random(0))
