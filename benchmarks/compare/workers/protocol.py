"""What every worker shares: answer lines of work on stdin with lines of seconds on stdout.

A worker runs under a peer's own Python, so nothing here needs more than the standard library. It is started as

    python WORKER.py '{"model": ..., "threads": ..., ...}'

prints one line when the model is ready, and then answers each `{"prompts": [[id, ...], ...], "tokens": n}` with the wall
seconds that all prompts together took to get `n` greedy tokens each, end tokens ignored.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Generate = Callable[[list[list[int]], int], int]


def serve(load: Callable[[dict[str, Any]], Generate]) -> None:
    """Load the model and answer until stdin ends.

    Args:
        load: From the options of the command line to a function that generates and returns how many tokens it made.
    """
    # Libraries print what they like; the answers go out through a copy of stdout that they do not know.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    start = time.perf_counter()
    generate = load(json.loads(sys.argv[1]))
    print(json.dumps({"ready_seconds": time.perf_counter() - start}), file=answers)
    for line in sys.stdin:
        work = json.loads(line)
        print(json.dumps(_timed(generate, work["prompts"], work["tokens"])), file=answers)


def _timed(generate: Generate, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    start = time.perf_counter()
    made = generate(prompts, tokens)
    seconds = time.perf_counter() - start
    if made != len(prompts) * tokens:
        raise SystemExit(f"{made} tokens came back where {len(prompts)} x {tokens} were asked for")
    return {"seconds": seconds}
