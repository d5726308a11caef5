"""What this machine can do at most with these kernels: a fifth of a second for each figure.

Matrix products that fit into a core's cache give the rate of computing; a product with one row and a matrix that fits
into no cache gives the rate of reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from octavo.ops import PackedWeight

SECONDS = 0.2
# [N, K] of a matrix that stays in a core's cache, and rows enough to forget what is done once a row.
EIGHT_BITS, FLOATS, MANY = (2048, 1024), (512, 512), 512
READ_BYTES = 512 << 20
READ_COLS = 4096


@dataclass(frozen=True)
class Figure:
    """One rate."""

    name: str
    isa: str
    threads: int
    value: float
    unit: str

    def line(self) -> str:
        threads = f"{self.threads:4} thread{'s' if self.threads > 1 else ''}"
        return f"{self.name:24}{self.isa:14}{threads:14}{self.value:10,.1f} {self.unit}"

    def to_json(self) -> dict[str, str | int | float]:
        return {
            "name": self.name, "isa": self.isa, "threads": self.threads, "value": self.value, "unit": self.unit,
        }  # fmt: skip


def rate(call: Callable[[], object], work: float, seconds: float, clock: Callable[[], float]) -> float:
    """Work a second of `call`, at its best: the fastest of its calls within `seconds`.

    Args:
        call: Does `work` (in any unit). Called at least twice; the first call is not counted.
        work: Of one call.
        seconds: How long to go on.
        clock: In seconds.
    """
    call()
    end = clock() + seconds
    best, now = float("inf"), clock()
    while True:
        begin = now
        call()
        now = clock()
        best = min(best, now - begin)
        if now >= end:
            return work / max(best, 1e-9)


def measure_roof(seconds: float = SECONDS, read_bytes: int = READ_BYTES) -> Iterator[Figure]:
    """All figures, one by one: each instruction set of this build and machine, with 1 thread and with all.

    The scalar kernels, a model for the others, are timed only where there are no others.

    Instruction set and number of threads are afterwards as they were, the threads where an engine has them.
    """
    from octavo import ops
    from octavo.platforms import core_count

    products = _products()
    with _restored():
        counts = sorted({1, min(core_count(), ops.MAX_THREADS)})
        _use(counts[-1])
        matrix = _large_matrix(read_bytes)
        for threads in counts:
            _use(threads)
            call, _ = _product(matrix, 1)
            value = rate(call, matrix.nbytes / 1e9, seconds, time.perf_counter)
            yield Figure("memory read", ops.isa(), threads, value, "GB/s")
        for isa in [name for name in reversed(ops.available_isas()) if name != "scalar"] or ["scalar"]:
            ops.set_isa(isa)
            for name, unit, (call, work) in products:
                for threads in counts:
                    _use(threads)
                    value = rate(call, work / 1e9, seconds, time.perf_counter)
                    yield Figure(name, isa, threads, value, unit)


def _use(threads: int) -> None:
    """Threads where the engine would have them."""
    from octavo import ops
    from octavo.config.env import environment
    from octavo.platforms import UNBOUND, thread_places

    ops.set_num_threads(threads, thread_places(threads) if environment().cpu_bind == "auto" else UNBOUND)


@contextmanager
def _restored() -> Iterator[None]:
    from octavo import ops

    isa, threads = ops.isa(), ops.num_threads()
    try:
        yield
    finally:
        ops.set_isa(isa)
        _use(threads)


def _products() -> list[tuple[str, str, tuple[Callable[[], object], float]]]:
    import torch

    from octavo import ops

    eight_bits = ops.pack_weight(_q8_blocks(*EIGHT_BITS), "q8_0", *EIGHT_BITS)
    floats = ops.pack_weight(torch.ones(FLOATS), "f32", *FLOATS)
    return [
        ("int8 product (Q8_0)", "Gop/s", _product(eight_bits, MANY)),
        ("float32 product", "GFLOP/s", _product(floats, MANY)),
    ]


def _product(weight: PackedWeight, many: int) -> tuple[Callable[[], object], float]:
    """A call that multiplies `many` rows by the matrix, and its operations (a multiplication and an addition are two)."""
    import torch

    from octavo import ops

    x = torch.ones(many, weight.cols)
    out = torch.empty(many, weight.rows)
    return lambda: ops.linear(x, [weight], out=out), 2.0 * many * weight.rows * weight.cols


def _large_matrix(read_bytes: int) -> PackedWeight:
    """In 8 bits, and no larger than an eighth of the free memory."""
    from octavo import ops
    from octavo.platforms import memory_available

    size = min(read_bytes, memory_available() // 8)
    rows = max(16, size // (READ_COLS // 32 * 34) // 16 * 16)
    return ops.pack_weight(_q8_blocks(rows, READ_COLS), "q8_0", rows, READ_COLS)


def _q8_blocks(rows: int, cols: int) -> torch.Tensor:
    """Blocks of Q8_0 that are all ones: the scale as float16, then 32 numbers of 8 bits."""
    import torch

    blocks = torch.ones(rows * cols // 32, 34, dtype=torch.uint8)
    blocks[:, 0], blocks[:, 1] = 0x00, 0x3C  # 1.0
    return blocks
