"""Processor time per decode step of the engine's thread outside of native code: scheduling, sampling, bookkeeping, text.

    python -m benchmarks.step_overhead [--model FILE] [--batch 1 32] [--tokens 200]

Greedy and sampled generations (top-p 0.9, top-k 50) take turns, and their speeds are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from octavo import LLM, SamplingParams
from octavo.ops import program
from octavo.ops.dispatch import built_module


@contextmanager
def native_seconds() -> Iterator[list[float]]:
    """Within the context, a list of the seconds of this thread that each native run took."""
    seconds: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            begin = time.thread_time()
            result = function(*args)
            seconds.append(time.thread_time() - begin)
            return result

        return call

    places = [(program.Program, "run")]
    places += [(built_module(), name) for name in ("decode", "argmax", "sample")]
    before = [getattr(*place) for place in places]
    for (owner, name), function in zip(places, before, strict=True):
        setattr(owner, name, timed(function))
    try:
        yield seconds
    finally:
        for (owner, name), function in zip(places, before, strict=True):
            setattr(owner, name, function)


@dataclass(frozen=True)
class Sample:
    """Of one generation; milliseconds per step."""

    outside: float
    native: float
    wall: float


def measure(llm: LLM, batch: int, tokens: int, sampling: SamplingParams) -> Sample:
    prompts = [{"prompt_token_ids": [index + 5, 7, 9, 11]} for index in range(batch)]
    with native_seconds() as native:
        wall, begin = time.perf_counter(), time.thread_time()
        llm.generate(prompts, sampling, use_tqdm=False)
        total, wall = time.thread_time() - begin, time.perf_counter() - wall
    inside = sum(native)
    return Sample(*(seconds / tokens * 1e3 for seconds in (total - inside, inside, wall)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="default: the embedded model")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    llm = LLM(options.model, enable_prefix_caching=False, disable_log_stats=True)
    common = {"max_tokens": options.tokens, "ignore_eos": True}
    kinds = {
        "greedy": SamplingParams(temperature=0, **common),
        "sampled": SamplingParams(temperature=1.0, top_p=0.9, top_k=50, seed=1, **common),
    }
    for batch in options.batch:
        samples: dict[str, list[Sample]] = {kind: [] for kind in kinds}
        for _ in range(options.runs + 1):
            for kind, sampling in kinds.items():
                samples[kind].append(measure(llm, batch, options.tokens, sampling))
        _print(batch, {kind: found[1:] for kind, found in samples.items()})  # the first ones warm up


def _print(batch: int, samples: dict[str, list[Sample]]) -> None:
    walls = {}
    for kind, found in samples.items():
        outside, inside, walls[kind] = (
            statistics.median(getattr(sample, name) for sample in found)
            for name in ("outside", "native", "wall")
        )
        print(f"batch {batch:3d} {kind:8s} outside {outside:.3f} ms/step, native {inside:.3f} ms/step")
    print(f"batch {batch:3d} sampled at {walls['greedy'] / walls['sampled']:.3f} of greedy's speed")


if __name__ == "__main__":
    main()
