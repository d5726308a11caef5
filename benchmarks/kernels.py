"""The matrix kernels alone: GB/s of packed weights for few rows, Gop/s for many.

    python -m benchmarks.kernels [--formats q4_1,q8_0] [--shapes 576x1536] [--rows 1,8,512] [--threads 1,2] [--isas avx2]

Each matrix is held as often as `--footprint` MB ask for and the copies are taken in turn, so that weights come from where
they come from in a model: memory, not the cache. A figure is the best of five passes, quantising of the rows included.
"""

from __future__ import annotations

import argparse
import time

import torch

from octavo import ops
from octavo.ops.packing import FLOAT_DTYPES, QUANTISED_BLOCKS

PASSES = 5
PASS_SECONDS = 0.04
# cols x rows: SmolLM2-135M's layers and head, then those of Llama 3.2 1B.
SHAPES = "576x192,576x576,576x1536,1536x576,576x49152,2048x2048,2048x8192,8192x2048"
# Byte offsets of the float16 fields of a block: random bits there would be NaN now and then.
F16_FIELDS = {
    "q4_1": (0, 2),
    "q5_1": (0, 2),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "mxfp4": (),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="GB/s and Gop/s of the matrix kernels")
    parser.add_argument("--formats", default=",".join(QUANTISED_BLOCKS))
    parser.add_argument("--shapes", default=SHAPES, help="cols x rows of the weights, comma separated")
    parser.add_argument("--rows", default="1,2,4,8,32,128,512", help="rows of activations")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--isas", default=ops.isa())
    parser.add_argument("--footprint", type=int, default=256, help="MB of weights that are read in turn")
    args = parser.parse_args()
    for fmt in args.formats.split(","):
        for shape in args.shapes.split(","):
            cols, outputs = (int(n) for n in shape.split("x"))
            if fmt in QUANTISED_BLOCKS and cols % QUANTISED_BLOCKS[fmt][0] != 0:
                continue
            copies = _copies(fmt, outputs, cols, args.footprint)
            for isa in args.isas.split(","):
                ops.set_isa(isa)
                for threads in (int(n) for n in args.threads.split(",")):
                    ops.set_num_threads(threads)
                    _report(f"{fmt} {shape} {isa} {threads}t", copies, [int(n) for n in args.rows.split(",")])


def _copies(fmt: str, outputs: int, cols: int, footprint: int) -> list[ops.PackedWeight]:
    raw = _random_weight(fmt, outputs, cols)
    first = ops.pack_weight(raw, fmt, outputs, cols)
    number = max(1, footprint * 1_000_000 // first.nbytes)
    return [first, *(ops.pack_weight(raw, fmt, outputs, cols) for _ in range(number - 1))]


def _random_weight(fmt: str, outputs: int, cols: int) -> torch.Tensor:
    if fmt in FLOAT_DTYPES:
        return torch.randn(outputs, cols).to(FLOAT_DTYPES[fmt])
    weights, size = QUANTISED_BLOCKS[fmt]
    blocks = torch.randint(0, 256, (outputs, cols // weights, size), dtype=torch.uint8)
    for offset in F16_FIELDS.get(fmt, (0,)):
        scales = torch.rand(outputs, cols // weights, 1).mul(0.02).to(torch.float16)
        blocks[:, :, offset : offset + 2] = scales.view(torch.uint8)
    if fmt == "mxfp4":
        blocks[:, :, 0] = 120  # the exponent
    return blocks


def _report(name: str, copies: list[ops.PackedWeight], rows: list[int]) -> None:
    weight = copies[0]
    figures = []
    for count in rows:
        x, out = torch.randn(count, weight.cols), torch.empty(count, weight.rows)
        seconds = _seconds_per_product(copies, x, out)
        gops = 2e-9 * count * weight.rows * weight.cols / seconds
        figures.append(
            f"M={count}: {weight.nbytes / seconds * 1e-9:.1f} GB/s" if count < 8 else f"{count}: {gops:.0f}"
        )
    print(f"{name:36}", ", ".join(figures), "Gop/s", flush=True)


def _seconds_per_product(copies: list[ops.PackedWeight], x: torch.Tensor, out: torch.Tensor) -> float:
    best = float("inf")
    turn = 0
    for _ in range(PASSES):
        start, done, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < PASS_SECONDS:
            ops.linear(x, [copies[turn % len(copies)]], out=out)
            turn += 1
            done += 1
            elapsed = time.perf_counter() - start
        best = min(best, elapsed / done)
    return best


if __name__ == "__main__":
    main()
