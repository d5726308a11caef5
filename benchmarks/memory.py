"""Where the server's memory goes: each process by kind of mapping, when it is ready and after requests.

    python -m benchmarks.memory [--model FILE] [--clients 16]

Each client sends a prompt of 128 tokens and takes 128, so 16 clients fill 4,096 tokens of pages. The sum of the highest
resident sizes is what the figure counts, beside what `import torch` alone takes; pages of libraries count in each process.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.clients import octavo_body, random_prompt, throughput
from benchmarks.measure import RunningServer, free_port, server

PROMPT = ANSWER = 128
_HEADER = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(?P<path>.*)")
_KINDS = (
    ("torch's libraries", re.compile(r"/torch/")),
    ("the model's file", re.compile(r"\.(gguf|safetensors)$")),
    ("KV pages", re.compile(r"^/dev/zero")),
    ("heap", re.compile(r"^(\[heap\])?$")),
    ("other libraries", re.compile(r"\.so|python")),
)


def resident_mib(smaps: str) -> dict[str, float]:
    """MiB of resident memory by kind, from the text of /proc/PID/smaps."""
    found: Counter[str] = Counter()
    kind = ""
    for line in smaps.splitlines():
        if header := _HEADER.match(line):
            path = header["path"]
            kind = next((name for name, pattern in _KINDS if pattern.search(path)), "others")
        elif line.startswith("Rss:"):
            found[kind] += int(line.split()[1])
    return {name: kib / 1024 for name, kib in found.items()}


def _import_mib(statement: str) -> float:
    program = (
        f"{statement}; print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(answer.stdout) / 1024


def _print(when: str, running: RunningServer) -> None:
    for name, process in zip(("front", "engine"), running.family(), strict=True):
        kinds = resident_mib(Path(f"/proc/{process.pid}/smaps").read_text())
        parts = ", ".join(
            f"{kind} {mib:.0f}" for kind, mib in sorted(kinds.items(), key=lambda i: -i[1]) if mib >= 1
        )
        print(f"| {when} | {name} | {sum(kinds.values()):.0f} | {parts} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="default: the embedded model")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=49000, help="random prompts draw below this id")
    args = parser.parse_args()
    port, rng = free_port(), random.Random(0)
    prompts = [random_prompt(rng, PROMPT, args.vocabulary) for _ in range(args.clients)]
    command = [sys.executable, "-m", "octavo.entrypoints.cli.main", "serve", *filter(None, [args.model])]
    with server([*command, "--port", str(port)], port, "/ready") as running:
        print("| when | process | resident, MiB | of it |\n|---|---|---|---|")
        _print("ready", running)
        throughput(f"{running.url}/v1/completions", [octavo_body(p, ANSWER) for p in prompts], ANSWER)
        _print(f"{args.clients * (PROMPT + ANSWER):,} tokens", running)
        peak = running.peak_memory_mib()
    torch = _import_mib("import torch")
    print(f"peak {peak:.0f} MiB; `import torch` alone {torch:.0f} MiB; beyond it {peak - torch:.0f} MiB")


if __name__ == "__main__":
    main()
