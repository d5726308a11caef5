"""The figures of RESULTS.md: start, prefill, decode, 32 clients, memory, idle; beside llama.cpp where its binaries are.

    python -m benchmarks.run [--llama-bin FOLDER] [--runs 5] [--json FILE]

The peers take turns (A, B, A, B, ...), so that a machine that drifts drifts for both; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.clients import llama_body, octavo_body, random_prompt, throughput
from benchmarks.measure import (
    RunningServer,
    first_output_seconds,
    free_port,
    median_of,
    server,
    wall_seconds,
)

OCTAVO = str(Path(sys.executable).with_name("octavo"))
CLIENTS, PROMPT, ANSWER = 32, 128, 128
PREFILL, DECODE = 512, 128


def main() -> None:
    args = _arguments()
    model = args.model or _default_model()
    rows: dict[str, dict[str, float]] = {"octavo": {}}
    rows["octavo"] |= _start_figures(args.runs)
    if args.llama_bin:
        rows["llama.cpp"] = {}
    _single_figures(rows, model, args)
    _server_figures(rows, model, args)
    _print(rows)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a .gguf file; default: the embedded model")
    parser.add_argument(
        "--llama-bin", help="folder with llama-bench, and llama-server or llama-batched-bench"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=49000, help="random prompts draw below this id")
    parser.add_argument("--json", help="also write the figures here")
    return parser.parse_args()


def _default_model() -> str:
    from octavo.engine.default_model import default_model_path

    return default_model_path()


def _start_figures(runs: int) -> dict[str, float]:
    question = [OCTAVO, "run", "What is the capital of France?", "--max-tokens", "4"]
    return {
        "help s": median_of(runs, lambda: wall_seconds([OCTAVO, "--help"])),
        "version s": median_of(runs, lambda: wall_seconds([OCTAVO, "--version"])),
        "run to first token s": median_of(runs, lambda: first_output_seconds(question)),
    }


def _single_figures(rows: dict[str, dict[str, float]], model: str, args: argparse.Namespace) -> None:
    """Prefill and decode of one sequence, in turns."""
    measures: dict[str, Callable[[], dict[str, float]]] = {"octavo": _Offline(model, args).measure}
    if args.llama_bin:
        measures["llama.cpp"] = lambda: _llama_bench(model, args)
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in measures}
    for _ in range(args.runs):
        for name, measure in measures.items():
            samples[name].append(measure())
    for name, found in samples.items():
        rows[name] |= {key: statistics.median(sample[key] for sample in found) for key in found[0]}


class _Offline:
    """The engine in this process, one request at a time, no prefix cache."""

    def __init__(self, model: str, args: argparse.Namespace) -> None:
        from octavo import LLM, SamplingParams

        self._llm = LLM(
            model=model, threads=args.threads, enable_prefix_caching=False, disable_log_stats=True
        )
        self._params = SamplingParams
        self._rng = random.Random(0)
        self._vocabulary = args.vocabulary
        self.measure()

    def measure(self) -> dict[str, float]:
        first = self._seconds(PREFILL, 1)
        short = self._seconds(8, 1)
        long = self._seconds(8, DECODE + 1)
        return {"prefill tok/s": PREFILL / first, "decode tok/s": DECODE / (long - short)}

    def _seconds(self, prompt: int, tokens: int) -> float:
        ids = random_prompt(self._rng, prompt, self._vocabulary)
        params = self._params(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        start = time.perf_counter()
        self._llm.generate({"prompt_token_ids": ids}, params, use_tqdm=False)
        return time.perf_counter() - start


def _llama_bench(model: str, args: argparse.Namespace) -> dict[str, float]:
    command = [f"{args.llama_bin}/llama-bench", "-m", model, "-t", str(args.threads), "-r", "1", "-o", "json"]
    answer = subprocess.run(
        [*command, "-p", str(PREFILL), "-n", str(DECODE)], check=True, capture_output=True, text=True
    )
    speeds = {
        ("prefill" if row["n_prompt"] else "decode"): row["avg_ts"] for row in json.loads(answer.stdout)
    }
    return {f"{name} tok/s": speed for name, speed in speeds.items()}


def _server_figures(rows: dict[str, dict[str, float]], model: str, args: argparse.Namespace) -> None:
    """32 clients against each server, in turns of whole servers."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    for turn in range(max(1, args.runs // 2)):
        samples["octavo"].append(_octavo_server(model, args, turn))
        if args.llama_bin:
            has_server = Path(args.llama_bin, "llama-server").exists()
            peer = _llama_server(model, args, turn) if has_server else _llama_batch(model, args)
            samples["llama.cpp"].append(peer)
    for name, found in samples.items():
        rows[name] |= {key: statistics.median(sample[key] for sample in found) for key in found[0]}


def _octavo_server(model: str, args: argparse.Namespace, turn: int) -> dict[str, float]:
    port = free_port()
    command = [OCTAVO, "serve", model, "--port", str(port), "--threads", str(args.threads)]
    with server(command, port, "/ready") as running:
        idle = _idle_share(running)
        bodies = _bodies(args, turn, octavo_body)
        speed = throughput(f"{running.url}/v1/completions", bodies, ANSWER)
        return {
            "ready s": running.ready_seconds,
            f"{CLIENTS} clients tok/s": speed,
            "peak memory MiB": running.peak_memory_mib(),
            "idle % of a core": idle,
        }


def _llama_server(model: str, args: argparse.Namespace, turn: int) -> dict[str, float]:
    port = free_port()
    command = [f"{args.llama_bin}/llama-server", "-m", model, "-t", str(args.threads), "-np", str(CLIENTS)]
    context = str(CLIENTS * (PROMPT + ANSWER + 16))
    with server([*command, "-c", context, "--port", str(port)], port, "/health") as running:
        speed = throughput(f"{running.url}/completion", _bodies(args, turn, llama_body), ANSWER)
        return {
            "ready s": running.ready_seconds,
            f"{CLIENTS} clients tok/s": speed,
            "peak memory MiB": running.peak_memory_mib(),
        }


def _llama_batch(model: str, args: argparse.Namespace) -> dict[str, float]:
    """The same work without a server, by `llama-batched-bench`: no HTTP, all prompts start together."""
    command = [f"{args.llama_bin}/llama-batched-bench", "-m", model, "-t", str(args.threads)]
    shape = [
        "-c",
        str(CLIENTS * (PROMPT + ANSWER)),
        "-npp",
        str(PROMPT),
        "-ntg",
        str(ANSWER),
        "-npl",
        str(CLIENTS),
    ]
    answer = subprocess.run(
        [*command, *shape, "--output-format", "jsonl"], check=True, capture_output=True, text=True
    )
    row = next(json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{"))
    return {f"{CLIENTS} clients tok/s": CLIENTS * ANSWER / row["t"]}


def _bodies(
    args: argparse.Namespace, turn: int, body: Callable[[list[int], int], dict[str, object]]
) -> list[dict[str, object]]:
    rng = random.Random(turn)
    return [body(random_prompt(rng, PROMPT, args.vocabulary), ANSWER) for _ in range(CLIENTS)]


def _idle_share(running: RunningServer, seconds: float = 5.0) -> float:
    """Percent of one core that the server takes while nobody asks."""
    time.sleep(1)
    before = running.cpu_seconds()
    time.sleep(seconds)
    return 100 * (running.cpu_seconds() - before) / seconds


def _print(rows: dict[str, dict[str, float]]) -> None:
    peer = rows.get("llama.cpp", {})
    print(f"| figure | octavo | {'llama.cpp | ratio |' if peer else ''}")
    print(f"|---|---|{'---|---|' if peer else ''}")
    for name, value in rows["octavo"].items():
        beside = (
            f" {peer[name]:.2f} | {value / peer[name]:.2f} |" if name in peer else (" | |" if peer else "")
        )
        print(f"| {name} | {value:.2f} |{beside}")


if __name__ == "__main__":
    main()
