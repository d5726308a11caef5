"""Time per decode step that is not spent in the native program: scheduling, sampling, bookkeeping, detokenising.

python -m benchmarks.step_overhead [--batch 1 32] [--tokens 200]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from octavo import LLM, SamplingParams
from octavo.ops import program
from octavo.ops.program import StepInputs


@contextmanager
def native_seconds() -> Iterator[list[float]]:
    """Within the context, a list of the seconds that each native run took."""
    seconds: list[float] = []
    original = program.Program.run

    def timed(self: program.Program, inputs: StepInputs) -> None:
        begin = time.perf_counter()
        original(self, inputs)
        seconds.append(time.perf_counter() - begin)

    program.Program.run = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        program.Program.run = original  # type: ignore[method-assign]


def overhead(llm: LLM, batch: int, tokens: int, sampling: SamplingParams) -> tuple[float, float]:
    """Milliseconds per step: outside of native code, and inside."""
    prompts = [{"prompt_token_ids": [index + 5, 7, 9, 11]} for index in range(batch)]
    with native_seconds() as native:
        begin = time.perf_counter()
        llm.generate(prompts, sampling, use_tqdm=False)
        wall = time.perf_counter() - begin
    return (wall - sum(native)) / tokens * 1e3, sum(native) / tokens * 1e3


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
