"""Paged attention and the writes of its cache, in plain torch."""

from __future__ import annotations

import torch


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store the keys and values of M tokens.

    Args:
        k, v: [M, num_kv_heads, head_dim].
        k_cache: [num_blocks, num_kv_heads, head_dim, block_size].
        v_cache: [num_blocks, num_kv_heads, block_size, head_dim].
        slot_mapping: [M] int64: block * block_size + offset; -1 skips the token.
    """
    kept = slot_mapping >= 0
    slots = slot_mapping[kept]
    block_size = v_cache.shape[2]
    blocks, offsets = slots // block_size, slots % block_size
    k_cache[blocks, :, :, offsets] = k[kept].to(k_cache.dtype)
    v_cache[blocks, :, offsets] = v[kept].to(v_cache.dtype)


def _visible(num_queries: int, length: int, first: int, window: int, device: torch.device) -> torch.Tensor:
    """[num_queries, length - first] bool: which keys each of the last `num_queries` positions may see."""
    query = torch.arange(length - num_queries, length, device=device)[:, None]
    key = torch.arange(first, length, device=device)[None, :]
    distance = query - key
    seen = distance >= 0
    return seen & (distance < window) if window > 0 else seen


def _attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """Attention of one sequence: q [n, Hq, d], keys [Hkv, d, L], values [Hkv, L, d], seen [n, L] -> [n, Hq * d]."""
    num_queries, num_heads, head_dim = q.shape
    grouped = q.reshape(num_queries, keys.shape[0], -1, head_dim)  # [n, Hkv, G, d]
    scores = torch.einsum("nhgd,hdl->nhgl", grouped, keys) * scale
    if softcap > 0:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~seen[:, None, None, :], float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("nhgl,hld->nhgd", weights, values).reshape(num_queries, num_heads * head_dim)


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    query_start: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of every sequence of a step over its pages; prefill and decode alike.

    Args:
        q: [M, num_heads, head_dim]; the rows of sequence s sit at its last positions.
        k_cache, v_cache: As in `write_kv`; this step's tokens are already there.
        query_start: [S+1] int32.
        seq_lens: [S] int32: tokens of each sequence, this step's included.
        block_table: [S, B] int32.
        scale: Factor on the scores.
        window: Key j is visible to position i iff 0 <= i - j < window; 0: no limit.
        softcap: Scores become `softcap * tanh(score / softcap)`; 0: off.

    Returns:
        [M, num_heads * head_dim].
    """
    block_size = v_cache.shape[2]
    compute = torch.promote_types(q.dtype, torch.float32)
    out = q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])
    starts = query_start.tolist()
    for s, (begin, end, length) in enumerate(zip(starts, starts[1:], seq_lens.tolist(), strict=False)):
        if begin == end:
            continue
        num_queries = end - begin
        oldest = max(0, length - num_queries - window + 1) if window > 0 else 0
        first_page = oldest // block_size  # pages before it may already belong to someone else
        first = first_page * block_size
        pages = block_table[s, first_page : -(-length // block_size)].long()
        keys = k_cache[pages].permute(1, 2, 0, 3).flatten(2)[..., : length - first].to(compute)
        values = v_cache[pages].transpose(0, 1).flatten(1, 2)[:, : length - first].to(compute)
        seen = _visible(num_queries, length, first, window, q.device)
        out[begin:end] = _attend(q[begin:end].to(compute), keys, values, seen, scale, softcap).to(q.dtype)
    return out
