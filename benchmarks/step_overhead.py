"""Processor time per decode step of the engine's thread outside of native code: scheduling, sampling, bookkeeping, text.

python -m benchmarks.step_overhead [--batch 1 32] [--tokens 200]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octavo import LLM, SamplingParams
from octavo.ops import program
from octavo.worker import recorded_model


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

    run, decode = program.Program.run, recorded_model.decode
    program.Program.run, recorded_model.decode = timed(run), timed(decode)  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        program.Program.run, recorded_model.decode = run, decode  # type: ignore[method-assign]


def overhead(llm: LLM, batch: int, tokens: int, sampling: SamplingParams) -> tuple[float, float]:
    """Milliseconds per step: outside of native code, and inside."""
    prompts = [{"prompt_token_ids": [index + 5, 7, 9, 11]} for index in range(batch)]
    with native_seconds() as native:
        begin = time.thread_time()
        llm.generate(prompts, sampling, use_tqdm=False)
        total = time.thread_time() - begin
    return (total - sum(native)) / tokens * 1e3, sum(native) / tokens * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    llm = LLM(enable_prefix_caching=False)
    kinds = {
        "greedy": SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True),
        "sampled": SamplingParams(
            temperature=1.0, top_p=0.9, top_k=50, seed=1, max_tokens=options.tokens, ignore_eos=True
        ),
    }
    for batch in options.batch:
        for kind, sampling in kinds.items():
            runs = [overhead(llm, batch, options.tokens, sampling) for _ in range(options.runs)]
            outside, inside = (statistics.median(values) for values in zip(*runs, strict=True))
            print(f"batch {batch:3d} {kind:8s} outside {outside:.3f} ms/step, native {inside:.3f} ms/step")


if __name__ == "__main__":
    main()
