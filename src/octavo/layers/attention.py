"""Causal attention over pages."""

from __future__ import annotations

import torch

from octavo import ops
from octavo.attention.metadata import ForwardBatch
from octavo.layers.base import BuildContext, SequenceLayer
from octavo.layers.linear import Linear
from octavo.layers.norm import RMSNormLayer
from octavo.layers.parts import Attention, Rope
from octavo.layers.rope import NoRotation, RopeTable


class AttentionLayer(SequenceLayer):
    """Projects, normalises and rotates, writes keys and values to their pages, attends, projects back."""

    def __init__(self, part: Attention, context: BuildContext) -> None:
        queries, keys = part.heads * part.head_dim, part.kv_heads * part.head_dim
        rows = (queries, keys, keys) if len(part.sources) == 3 else (queries + 2 * keys,)
        self.qkv_proj = Linear(
            context.hidden_size, dict(zip(part.sources, rows, strict=True)), bias=part.bias
        )
        self.o_proj = Linear(queries, {"o_proj": context.hidden_size}, bias=part.out_bias)
        self.q_norm, self.k_norm = _head_norm(part, part.heads), _head_norm(part, part.kv_heads)
        self._norm_together = part.norm_heads_together
        self._rope = _rotation(part, context)
        self._layer = context.layer
        self._head_dim = part.head_dim
        self._split = [part.heads, part.kv_heads, part.kv_heads]
        self._num_rotated = part.heads + part.kv_heads
        self._scale = part.head_dim**-0.5 if part.scale is None else part.scale
        self._window, self._softcap = part.window, part.softcap

    def forward(self, x: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        q, k, v = self._project(x, batch.positions)
        cache = batch.kv[self._layer]
        rows, pages = batch.attention, batch.attention.groups[cache.group]
        ops.write_kv(k, v, cache.k_cache, cache.v_cache, pages.slot_mapping)
        attended = ops.paged_attention(
            q,
            cache.k_cache,
            cache.v_cache,
            rows.query_start,
            rows.seq_lens,
            pages.block_table,
            scale=self._scale,
            window=self._window,
            softcap=self._softcap,
        )
        return self.o_proj.forward(attended)

    def _project(
        self, x: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[M, hidden] -> rotated q [M, Hq, hd] and k [M, Hkv, hd], and v [M, Hkv, hd]."""
        heads = self.qkv_proj.forward(x).view(x.shape[0], -1, self._head_dim)  # [M, Hq + 2 Hkv, hd]
        q, k, v = heads.split_with_sizes(self._split, 1)
        if self.q_norm is None or self.k_norm is None:
            # q and k lie side by side: one rotation does for both.
            self._rope.rotate(heads.narrow(1, 0, self._num_rotated), positions)
            return q, k, v
        if self._norm_together:
            q = self.q_norm.forward(q.flatten(1)).view(q.shape)
            k = self.k_norm.forward(k.flatten(1)).view(k.shape)
        else:
            q, k = self.q_norm.forward(q), self.k_norm.forward(k)
        self._rope.rotate(q, positions)
        self._rope.rotate(k, positions)
        return q, k, v


def _head_norm(part: Attention, heads: int) -> RMSNormLayer | None:
    if part.qk_norm is None:
        return None
    width = heads * part.head_dim if part.norm_heads_together else part.head_dim
    return RMSNormLayer(width, part.qk_norm.eps, part.qk_norm.offset)


def _rotation(part: Attention, context: BuildContext) -> RopeTable | NoRotation:
    return context.ropes.table(part.position) if isinstance(part.position, Rope) else NoRotation()
