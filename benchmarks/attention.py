"""Paged attention and sampling by themselves, against what the machine can read and multiply.

    python -m benchmarks.attention [decode|prefill|sample ...] [--dtype bfloat16] [--shape NAME]

A model's layers each bring pages of their own, so the measured calls walk through as many caches as exceed the
processor's (or as a deep model has): what is measured is the read from memory, not from a cache left warm.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from octavo import ops
from octavo.attention.metadata import KVBinding
from octavo.scheduling.kv.groups import plan_groups
from octavo.types.kv import KVLayer
from octavo.worker.kv_tensors import KVTensors

BLOCK_SIZE = 32
WORKING_SET = 400 << 20
MAX_LAYERS = 32


@dataclass(frozen=True)
class Shape:
    """One attention layer of a model."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0


SHAPES = [
    Shape("smollm2-135m", 9, 3, 64),
    Shape("llama-1b", 32, 8, 64),
    Shape("mistral-7b", 32, 8, 128),
    Shape("gemma3-1b", 4, 1, 256, 512),
]


def median_us(calls: list[Callable[[], object]], seconds: float) -> float:
    """Median microseconds of a call; the calls take turns."""
    for call in calls:
        call()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 5:
        for call in calls:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def layers_of(shape: Shape, blocks: int, dtype: str) -> list[KVBinding]:
    """Filled caches as an engine allocates them, as many as exceed the processor's own."""
    layer = KVLayer(shape.kv_heads, shape.head_dim)
    count = max(
        1, min(MAX_LAYERS, WORKING_SET // plan_groups([layer], BLOCK_SIZE, dtype).page_bytes // blocks)
    )
    layers = KVTensors(plan_groups([layer] * count, BLOCK_SIZE, dtype), blocks).bindings()
    slots = torch.arange(blocks * BLOCK_SIZE)
    k = torch.randn(len(slots), shape.kv_heads, shape.head_dim)
    for cache in layers:
        ops.write_kv(k, k.flip(0), cache.k_cache, cache.v_cache, slots)
    return layers


def attention_calls(
    shape: Shape, batch: int, context: int, rows: int, dtype: str
) -> list[Callable[[], object]]:
    """Attention of the last `rows` tokens of `batch` sequences of `context` tokens, a call a layer."""
    pages = -(-context // BLOCK_SIZE)
    layers = layers_of(shape, batch * pages, dtype)
    table = torch.randperm(batch * pages).int().view(batch, pages)
    query_start = torch.arange(0, batch * rows + 1, rows, dtype=torch.int32)
    seq_lens = torch.full((batch,), context, dtype=torch.int32)
    q = torch.randn(batch * rows, shape.heads, shape.head_dim)

    def call(layer: KVBinding) -> object:
        return ops.paged_attention(
            q,
            layer.k_cache,
            layer.v_cache,
            query_start,
            seq_lens,
            table,
            scale=shape.head_dim**-0.5,
            window=shape.window,
        )

    return [partial(call, layer) for layer in layers]


def decode(shapes: list[Shape], dtype: str, seconds: float) -> None:
    """Microseconds and GB/s of keys and values read, one token a sequence."""
    for shape in shapes:
        for batch in (1, 32):
            for context in (128, 1024, 8192):
                us = median_us(attention_calls(shape, batch, context, 1, dtype), seconds)
                seen = min(context, shape.window or context)
                nbytes = (
                    batch * seen * plan_groups([KVLayer(shape.kv_heads, shape.head_dim)], 1, dtype).page_bytes
                )
                print(
                    f"decode  {shape.name:13} {dtype:9} batch {batch:3} context {context:5}"
                    f" {us:9.1f} us {nbytes / us / 1e3:6.1f} GB/s",
                    flush=True,
                )


def prefill(shapes: list[Shape], dtype: str, seconds: float) -> None:
    """Microseconds and GFLOP/s, only visible keys counted."""
    for shape in shapes:
        for context in (512, 2048):
            us = median_us(attention_calls(shape, 1, context, context, dtype), seconds)
            window = shape.window or context
            pairs = sum(min(position + 1, window) for position in range(context))
            flop = 4 * pairs * shape.heads * shape.head_dim
            print(
                f"prefill {shape.name:13} {dtype:9} tokens {context:5} {us:9.1f} us {flop / us / 1e3:6.1f} GFLOP/s",
                flush=True,
            )


def sample(seconds: float) -> None:
    """Microseconds a row of greedy and of sampled decoding (top_p 0.9, top_k 50), logits as a model has them."""
    for vocab in (49152, 151936, 262144):
        for rows in (1, 32):
            logits = torch.randn(rows, vocab) * 2.5
            peaked = -1.5 * torch.rand(rows, vocab).argsort(1).add(1).float().log()  # Zipf's law
            warm, off = torch.ones(rows), torch.zeros(rows)
            top_k, top_p = torch.full((rows,), 50, dtype=torch.int32), torch.full((rows,), 0.9)
            uniform = torch.rand(rows, dtype=torch.float64)
            kinds: dict[str, Callable[[], object]] = {
                "argmax": partial(ops.argmax, logits),
                "top_k 50 top_p 0.9": partial(ops.sample, logits, warm, top_k, top_p, off, uniform),
                "top_p 0.9, peaked": partial(ops.sample, peaked, warm, off.int(), top_p, off, uniform),
                "top_p 0.9, flat": partial(ops.sample, logits, warm, off.int(), top_p, off, uniform),
            }
            for name, call in kinds.items():
                us = median_us([call], seconds)
                print(f"{name:18} vocab {vocab:6} rows {rows:3} {us / rows:8.1f} us a row", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["decode", "prefill", "sample"])
    parser.add_argument("--dtype", nargs="*", default=["bfloat16"])
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3)
    args = parser.parse_args()
    ops.set_num_threads(args.threads)
    torch.set_num_threads(1)
    shapes = [shape for shape in SHAPES if args.shape in (None, shape.name)]
    print(f"{ops.isa()}, {ops.num_threads()} threads")
    for dtype in args.dtype:
        if "decode" in args.what:
            decode(shapes, dtype, args.seconds)
        if "prefill" in args.what:
            prefill(shapes, dtype, args.seconds)
    if "sample" in args.what:
        sample(args.seconds)


if __name__ == "__main__":
    main()
