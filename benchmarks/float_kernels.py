"""The matrix kernels for float weights beside torch's own: GB/s of weights for a row, GFLOP/s for many.

    python -m benchmarks.float_kernels [--formats bf16] [--shapes 2048x2048] [--rows 1,8,512] [--threads 1,2] [--isas avx2]

Each matrix is held several times, and the copies are taken in turn: weights come from memory, as in a model. A figure is
the best of a few passes. torch's matmul meets the same rows, in bf16 for bf16 weights (which rounds the activations).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from octavo import ops
from octavo.ops.packing import FLOAT_DTYPES

PASSES = 4
PASS_SECONDS = 0.03
# cols x rows: SmolLM2-135M's MLP, then Llama 3.2 1B and its head.
SHAPES = "576x1536,2048x2048,2048x8192,8192x2048,2048x128256"


def main() -> None:
    parser = argparse.ArgumentParser(description="GB/s and GFLOP/s of the float matrix kernels")
    parser.add_argument("--formats", default=",".join(FLOAT_DTYPES))
    parser.add_argument("--shapes", default=SHAPES, help="cols x rows of the weights, comma separated")
    parser.add_argument("--rows", default="1,8,32,128,512", help="rows of activations")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--isas", default=ops.isa())
    parser.add_argument("--footprint", type=int, default=256, help="MB of weights that are read in turn")
    parser.add_argument("--torch", action="store_true", help="measure torch too")
    args = parser.parse_args()
    rows = [int(n) for n in args.rows.split(",")]
    for fmt in args.formats.split(","):
        for shape in args.shapes.split(","):
            cols, outputs = (int(n) for n in shape.split("x"))
            raw = torch.randn(outputs, cols).to(FLOAT_DTYPES[fmt])
            number = max(1, args.footprint * 1_000_000 // raw.nbytes)
            for threads in (int(n) for n in args.threads.split(",")):
                _report_octavo(
                    f"{fmt} {shape} {threads}t", raw, fmt, number, threads, rows, args.isas.split(",")
                )
                if args.torch:
                    _report_torch(f"{fmt} {shape} {threads}t torch", raw, number, threads, rows)


def _report_octavo(
    name: str, raw: torch.Tensor, fmt: str, number: int, threads: int, rows: list[int], isas: list[str]
) -> None:
    outputs, cols = raw.shape
    copies = [ops.pack_weight(raw, fmt, outputs, cols) for _ in range(number)]
    ops.set_num_threads(threads)
    for isa in isas:
        ops.set_isa(isa)
        figures = []
        for count in rows:
            x, out = torch.randn(count, cols), torch.empty(count, outputs)
            seconds = _seconds(lambda turn, x=x, out=out: ops.linear(x, [copies[turn % number]], out=out))
            figures.append(_figure(count, raw, seconds))
        print(f"{name + ' ' + isa:34}", ", ".join(figures), flush=True)


def _report_torch(name: str, raw: torch.Tensor, number: int, threads: int, rows: list[int]) -> None:
    copies = [raw.clone() for _ in range(number)]
    torch.set_num_threads(threads)
    figures = []
    for count in rows:
        x = torch.randn(count, raw.shape[1]).to(raw.dtype)
        seconds = _seconds(lambda turn, x=x: torch.nn.functional.linear(x, copies[turn % number]))
        figures.append(_figure(count, raw, seconds))
    print(f"{name:34}", ", ".join(figures), flush=True)


def _figure(count: int, raw: torch.Tensor, seconds: float) -> str:
    if count == 1:
        return f"M=1: {raw.nbytes / seconds * 1e-9:.1f} GB/s"
    return f"{count}: {2e-9 * count * raw.numel() / seconds:.0f} GFLOP/s"


def _seconds(product: Callable[[int], object]) -> float:
    best, turn = float("inf"), 0
    for _ in range(PASSES):
        start, done, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < PASS_SECONDS:
            product(turn)
            turn += 1
            done += 1
            elapsed = time.perf_counter() - start
        best = min(best, elapsed / done)
    return best


if __name__ == "__main__":
    main()
