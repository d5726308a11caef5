"""Embeddings a second beside the same prompts' prefill: what pooling costs, and that no head is computed.

    python -m benchmarks.embeddings [--model FILE] [--texts 64] [--tokens 128] [--runs 5] [--pooling LAST MEAN]

`prefill` is what `octavo bench latency --output-len 1` measures: all prompts at once, one token each. Turns alternate.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.clients import random_prompt
from octavo import LLM, SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="default: the embedded model")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pooling", nargs="+", default=["LAST", "MEAN"])
    options = parser.parse_args()
    works = {"prefill": _prefill(options.model)}
    works |= {f"embed {kind}": _embed(options.model, kind) for kind in options.pooling}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(options.runs + 1):
        for name, work in works.items():
            taken = _seconds(work, _prompts(turn, options.texts, options.tokens))
            if turn:  # the first one warms up
                seconds[name].append(taken)
    for name, found in seconds.items():
        median = statistics.median(found)
        print(
            f"{name:12} {options.texts * options.tokens / median:8.0f} tok/s {options.texts / median:7.1f} texts/s"
            f"  ({min(found):.3f} to {max(found):.3f} s)"
        )


Work = Callable[[list[Any]], object]


def _prefill(model: str | None) -> Work:
    llm = LLM(model, skip_tokenizer_init=True, enable_prefix_caching=False)
    one = SamplingParams(temperature=0, max_tokens=1)
    return lambda prompts: llm.generate(prompts, one, use_tqdm=False)


def _embed(model: str | None, kind: str) -> Work:
    llm = LLM(
        model,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        runner="pooling",
        pooler_config={"pooling_type": kind},
    )
    return lambda prompts: llm.encode(prompts, use_tqdm=False)


def _prompts(seed: int, texts: int, tokens: int) -> list[Any]:
    draw = random.Random(seed)
    return [{"prompt_token_ids": random_prompt(draw, tokens, 40_000)} for _ in range(texts)]


def _seconds(work: Work, prompts: list[Any]) -> float:
    begin = time.perf_counter()
    work(prompts)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
