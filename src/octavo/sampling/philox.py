"""Random numbers that depend on a seed and a position only, so that neighbours, preemption and restarts change nothing.

Philox 4x32-10 from Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Uniforms computed at a time: one vectorised run costs about as much as a few single ones.
CHUNK = 128


def philox4x32(counters: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Encrypt counters.

    Args:
        counters: [..., 4], 32-bit words.
        keys: [..., 2], 32-bit words; a key for each counter, or what numpy makes that of.

    Returns:
        [..., 4], 32-bit words.
    """
    c0, c1, c2, c3 = (counters[..., i] for i in range(4))
    k0, k1 = keys[..., 0], keys[..., 1]
    for _ in range(_ROUNDS):
        product_0, product_1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ k0,
            product_1 & _LOW,
            (product_0 >> _HALF) ^ c3 ^ k1,
            product_0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return np.stack((c0, c1, c2, c3), axis=-1)


def uniforms(seeds: NDArray[np.uint64], chunks: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers of tokens [chunk * CHUNK, (chunk + 1) * CHUNK) of each seed.

    Args:
        seeds: [n].
        chunks: [n].

    Returns:
        [n, CHUNK] in [0, 1), multiples of 2^-53.
    """
    blocks = (chunks[:, None] * (CHUNK // 2) + np.arange(CHUNK // 2)).astype(np.uint64)
    none = np.zeros_like(blocks)
    keys = np.stack((seeds & _LOW, seeds >> _HALF), axis=-1)
    words = philox4x32(np.stack((blocks & _LOW, blocks >> _HALF, none, none), axis=-1), keys[:, None])
    pairs = words.reshape(len(seeds), CHUNK, 2)
    # 53 bits: 32 from the first word of a pair, 21 from the second.
    bits = (pairs[..., 0] << np.uint64(21)) | (pairs[..., 1] >> np.uint64(11))
    return bits * np.float64(2.0**-53)


class UniformTable:
    """The uniform numbers of requests in slots, addressed by the index of the generated token.

    Args:
        num_slots: Requests at a time.
    """

    def __init__(self, num_slots: int) -> None:
        self._seeds = np.zeros(num_slots, np.uint64)
        self._numbers = np.zeros((num_slots, CHUNK))
        self._chunks = np.full(num_slots, -1)
        """Which chunk of its numbers each slot's row holds; -1 for none."""

    def set_seed(self, slot: int, seed: int) -> None:
        """Give a slot another stream: any 64-bit integer; negative ones are taken modulo 2^64."""
        self._seeds[slot] = seed & 0xFFFFFFFFFFFFFFFF
        self._chunks[slot] = -1

    def at(self, slots: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """[R] the number of token `indices[i]` of each of several distinct slots."""
        chunks = indices // CHUNK
        stale = self._chunks[slots] != chunks
        if stale.any():
            missing = slots[stale]
            self._numbers[missing] = uniforms(self._seeds[missing], chunks[stale])
            self._chunks[missing] = chunks[stale]
        return self._numbers[slots, indices % CHUNK]
