"""Random numbers that depend on a seed and a position only, so that neighbours, preemption and restarts change nothing.

Philox 4x32-10 from Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Uniforms computed at a time: one vectorised run costs about as much as a few single ones.
_CHUNK = 128


def philox4x32(counters: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Encrypt counters.

    Args:
        counters: [n, 4], 32-bit words.
        key: Two 32-bit words.

    Returns:
        [n, 4], 32-bit words.
    """
    c0, c1, c2, c3 = (counters[:, i] for i in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0, product_1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ np.uint64(k0),
            product_1 & _LOW,
            (product_0 >> _HALF) ^ c3 ^ np.uint64(k1),
            product_0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=1)


class UniformStream:
    """The uniform numbers of one request, addressed by the index of the generated token.

    Args:
        seed: Any 64-bit integer; negative ones are taken modulo 2^64.
    """

    __slots__ = ("_chunk", "_first", "_key")

    def __init__(self, seed: int) -> None:
        self._key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
        self._first = -1
        self._chunk: list[float] = []

    def at(self, index: int) -> float:
        """The number in [0, 1) of token `index`, a multiple of 2^-53."""
        first = index - index % _CHUNK
        if first != self._first:
            self._chunk = self._compute(first)
            self._first = first
        return self._chunk[index - first]

    def _compute(self, first: int) -> list[float]:
        blocks = np.arange(first // 2, (first + _CHUNK) // 2, dtype=np.uint64)
        counters = np.zeros((len(blocks), 4), np.uint64)
        counters[:, 0] = blocks & _LOW
        counters[:, 1] = blocks >> _HALF
        words = philox4x32(counters, self._key).reshape(-1, 2)
        # 53 bits: 32 from the first word of a pair, 21 from the second.
        bits = (words[:, 0] << np.uint64(21)) | (words[:, 1] >> np.uint64(11))
        numbers: list[float] = (bits * np.float64(2.0**-53)).tolist()
        return numbers
