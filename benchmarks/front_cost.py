"""Processor time of the serving front (HTTP, JSON, tokenizer, text) for each generated token, answers whole and streamed.

    python -m benchmarks.front_cost [--model FILE] [--clients 1 32] [--runs 3]

All clients of a run start together, with prompts of 128 tokens and answers of 128. They are processes' work too: on a small
machine they take their share of the cores, so the tokens a second beside the cost are lower than a server's own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from benchmarks.clients import octavo_body, random_prompt
from benchmarks.measure import free_port, server

PROMPT = ANSWER = 128
KINDS = {"whole": False, "streamed": True}


@dataclass(frozen=True)
class Cost:
    """Of one run: processor microseconds of the front a token, its share of one core, and tokens a second over all."""

    microseconds: float
    share: float
    speed: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="default: the embedded model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=49000, help="random prompts draw below this id")
    options = parser.parse_args()
    port, rng = free_port(), random.Random(0)
    command = [sys.executable, "-m", "octavo.entrypoints.cli.main", "serve", *filter(None, [options.model])]
    print("| clients | answers | front, us a token | of one core, % | tok/s |\n|---|---|---|---|---|")
    with server([*command, "--port", str(port)], port, "/ready") as running:
        front = psutil.Process(running.process.pid)
        for clients in options.clients:
            for kind, stream in KINDS.items():
                costs = []
                for _ in range(options.runs + 1):
                    prompts = [random_prompt(rng, PROMPT, options.vocabulary) for _ in range(clients)]
                    costs.append(measure(front, f"{running.url}/v1/completions", prompts, stream=stream))
                print(row(clients, kind, costs[1:]), flush=True)  # the first one warms up


def measure(front: psutil.Process, url: str, prompts: list[list[int]], *, stream: bool) -> Cost:
    """One run of all prompts at once."""
    bodies = [octavo_body(prompt, ANSWER) | {"stream": stream} for prompt in prompts]
    before, begin = sum(front.cpu_times()[:2]), time.perf_counter()
    asyncio.run(_ask(url, bodies))
    seconds = time.perf_counter() - begin
    used, tokens = sum(front.cpu_times()[:2]) - before, len(prompts) * ANSWER
    return Cost(used / tokens * 1e6, used / seconds, tokens / seconds)


async def _ask(url: str, bodies: list[dict[str, Any]]) -> None:
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(timeout=900, limits=limits) as client:
        await asyncio.gather(*(_read(client, url, body) for body in bodies))


async def _read(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> None:
    """To the end, without looking at it: parsing is the client's cost."""
    async with client.stream("POST", url, json=body) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_raw():
            pass


def row(clients: int, kind: str, costs: list[Cost]) -> str:
    """Of a table in Markdown; medians."""
    cost, share, speed = (
        statistics.median(getattr(cost, name) for cost in costs)
        for name in ("microseconds", "share", "speed")
    )
    return f"| {clients} | {kind} | {cost:.0f} | {share * 100:.0f} | {speed:.0f} |"


if __name__ == "__main__":
    main()
