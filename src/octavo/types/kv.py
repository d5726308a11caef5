"""How keys and values are laid out in pages. Computed from a model's spec before any weight is loaded."""

from __future__ import annotations

import msgspec


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
    """`float32`, `bfloat16` or `float16`."""
    groups: tuple[KVGroup, ...]

    @property
    def num_tensors(self) -> int:
        """KV tensors to allocate: the largest group's number of layers."""
        return max((len(group.layers) for group in self.groups), default=0)

    @property
    def page_bytes(self) -> int:
        """Bytes of keys and values of one page in one tensor."""
        itemsize = 4 if self.dtype == "float32" else 2
        return 2 * self.block_size * self.num_kv_heads * self.head_dim * itemsize

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all tensors."""
        return self.page_bytes * self.num_tensors
