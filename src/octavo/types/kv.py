"""How keys and values are laid out in pages. Computed from a model's spec before any weight is loaded."""

from __future__ import annotations

import msgspec

KV_DTYPES = ("float32", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2", "int8")
"""Types of keys and values in pages."""

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_INT8_SCALE_BYTES = 4


class KVLayer(msgspec.Struct, frozen=True, array_like=True):
    """What one attention layer keeps for each token."""

    num_kv_heads: int
    head_dim: int
    window: int = 0
    """Sliding window in tokens, 0 = all tokens are kept."""


class KVGroup(msgspec.Struct, frozen=True, array_like=True):
    """Layers that share one block table because they keep the same tokens."""

    layers: tuple[int, ...]
    """Indices into the model's layers; the j-th uses KV tensor j with this group's block table."""
    window: int = 0


class KVLayout(msgspec.Struct, frozen=True, array_like=True):
    """Page geometry. One block pool serves all groups: a block is one page in each of `num_tensors` tensors."""

    block_size: int
    """Tokens a page."""
    num_kv_heads: int
    head_dim: int
    dtype: str
    """One of `KV_DTYPES`."""
    groups: tuple[KVGroup, ...]

    @property
    def num_tensors(self) -> int:
        """KV tensors to allocate: the largest group's number of layers."""
        return max((len(group.layers) for group in self.groups), default=0)

    @property
    def page_bytes(self) -> int:
        """Bytes of keys and values of one page in one tensor."""
        head_bytes = self.head_dim * _ELEMENT_BYTES.get(self.dtype, 1)
        if self.dtype == "int8":
            head_bytes += _INT8_SCALE_BYTES
        return 2 * self.block_size * self.num_kv_heads * head_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all tensors."""
        return self.page_bytes * self.num_tensors
