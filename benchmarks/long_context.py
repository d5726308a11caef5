"""Time of a decoded token after a long context against a short one, beside what reading the longer cache takes.

    python -m benchmarks.long_context --model FILE [--contexts 128 8000] [--tokens 32] [--runs 5]

One sequence, greedy. The cache's bytes between the two contexts, at the machine's read bandwidth (`octavo doctor --bench`), are
what the longer context should cost; `explained` is the time it did cost over that.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from benchmarks.clients import random_prompt
from octavo import LLM, SamplingParams
from octavo.engine.clients.inproc import InprocClient
from octavo.entrypoints.bench.roof import measure_roof


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="default: the embedded model")
    parser.add_argument("--contexts", type=int, nargs=2, default=[128, 8000], metavar=("SHORT", "LONG"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    llm = LLM(options.model, disable_log_stats=True, skip_tokenizer_init=True)
    bandwidth = read_bandwidth()
    seconds: dict[int, list[float]] = {context: [] for context in options.contexts}
    for turn in range(options.runs):
        for context in options.contexts[:: 1 if turn % 2 == 0 else -1]:
            seconds[context].append(decode_seconds(llm, context, options.tokens))
    short, long = (statistics.median(seconds[context]) for context in options.contexts)
    growth = (options.contexts[1] - options.contexts[0]) * kv_bytes_a_token(llm)
    print(report(short, long, growth, bandwidth))


def decode_seconds(llm: LLM, context: int, tokens: int) -> float:
    """Of one token after `context` others, whose pages are in the cache when the clock starts."""
    vocabulary = llm.llm_engine.config.model.vocab_size
    prompt = {"prompt_token_ids": random_prompt(random.Random(context), context, vocabulary)}

    def generate(count: int) -> float:
        begin = time.perf_counter()
        llm.generate(
            [prompt], SamplingParams(temperature=0, max_tokens=count, ignore_eos=True), use_tqdm=False
        )
        return time.perf_counter() - begin

    generate(1)
    return (generate(tokens + 1) - generate(1)) / tokens


def kv_bytes_a_token(llm: LLM) -> float:
    """What the cache keeps of a token, over all layers. Sliding windows are counted as if they kept all."""
    client = llm.llm_engine.client
    assert isinstance(client, InprocClient)
    return client.core.layout.block_bytes / client.core.layout.block_size


def read_bandwidth() -> float:
    """Bytes a second with all threads."""
    return max(figure.value for figure in measure_roof() if figure.name == "memory read") * 1e9


def report(short: float, long: float, growth: float, bandwidth: float) -> str:
    """One line from seconds a token, bytes more to read, and bytes a second."""
    expected = growth / bandwidth
    return (
        f"{short * 1e3:.2f} ms a token, {long * 1e3:.2f} after the long context: {(long - short) * 1e3:.2f} more for "
        f"{growth / 2**20:.0f} MiB, which take {expected * 1e3:.2f} at {bandwidth / 1e9:.1f} GB/s: "
        f"explained to {(long - short) / expected:.2f}"
    )


if __name__ == "__main__":
    main()
