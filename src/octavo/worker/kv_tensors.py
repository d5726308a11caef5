"""The memory of the key-value cache."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod

import torch

from octavo import ops
from octavo.attention.metadata import KVBinding
from octavo.lib.errors import ConfigError
from octavo.types.kv import KVLayout

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}


class KVTensors:
    """Pages of keys and values for every layer.

    The memory is reserved at once but becomes resident page by page as tokens are written, and reads as zero before.

    Args:
        layout: Page geometry.
        num_blocks: Usable blocks; block 0, the null page, comes on top.

    Raises:
        ConfigError: the system refuses that much memory.
    """

    def __init__(self, layout: KVLayout, num_blocks: int) -> None:
        dtype = DTYPES[layout.dtype]
        shapes = ops.kv_cache_shapes(
            num_blocks + 1, layout.num_kv_heads, layout.head_dim, layout.block_size, dtype
        )
        self.layout = layout
        self.num_blocks = num_blocks
        self._maps: list[mmap.mmap] = []
        self.pairs = [
            (self._zeros(shapes[0], dtype), self._zeros(shapes[1], dtype)) for _ in range(layout.num_tensors)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes reserved, the null page included."""
        return (self.num_blocks + 1) * self.layout.block_bytes

    def discard(self) -> None:
        """Give all pages back to the system. They stay where they are, read as zero, and take memory when written to."""
        for memory in self._maps:
            _give_back(memory)

    def _zeros(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Zeros that take memory only where they are touched."""
        memory = _reserved(prod(shape) * dtype.itemsize)
        self._maps.append(memory)
        return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(*shape)

    def bindings(self) -> list[KVBinding]:
        """One per layer that keeps keys and values, in layer order."""
        bound: dict[int, KVBinding] = {}
        for group_index, group in enumerate(self.layout.groups):
            for pair, layer in zip(
                self.pairs, group.layers, strict=False
            ):  # a smaller group leaves tensors unused
                bound[layer] = KVBinding(*pair, group_index)
        return [bound[layer] for layer in sorted(bound)]


def _reserved(nbytes: int) -> mmap.mmap:
    """Memory that the system hands out page by page as it is touched, in huge pages where it grants them."""
    try:
        memory = mmap.mmap(-1, nbytes)
    except OSError as error:
        raise ConfigError(
            f"cannot reserve {nbytes >> 20} MiB for the key-value cache ({error.strerror}); lower kv_cache_memory_bytes",
            param="kv_cache_memory_bytes",
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        _advise_huge_pages(memory)
    return memory


def _give_back(memory: mmap.mmap) -> None:
    """Python's anonymous maps are shared, of which only MADV_REMOVE frees pages; without it they are overwritten."""
    if hasattr(mmap, "MADV_REMOVE"):
        memory.madvise(mmap.MADV_REMOVE)
    else:
        memory[:] = bytes(len(memory))


def _advise_huge_pages(memory: mmap.mmap) -> None:
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel built without them: ordinary pages work as well, only slower
        return
