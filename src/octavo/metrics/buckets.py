"""Histogram buckets. The same edges as vLLM's, so that existing dashboards and alerts read on."""

from __future__ import annotations

TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_INTERVAL = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
N_BUCKETS = (1, 2, 5, 10, 20)


def one_two_five(upper: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, ... up to and not above `upper`.

    Example:
        >>> one_two_five(60)
        (1, 2, 5, 10, 20, 50)
    """
    edges: list[float] = []
    scale = 1
    while scale <= upper:
        edges += [scale * step for step in (1, 2, 5) if scale * step <= upper]
        scale *= 10
    return tuple(edges) or (1,)
