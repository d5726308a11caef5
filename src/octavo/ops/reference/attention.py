"""Paged attention and the writes of its cache, in plain torch."""

from __future__ import annotations

import torch

SCALE_BYTES = 4
"""Of a token and head in an int8 cache."""


def _int8_parts(cache: torch.Tensor, shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of an int8 cache: its elements [blocks, heads, *shape] and its scales [blocks, heads, block_size]."""
    flat = cache.flatten(2)
    elements = shape[0] * shape[1]
    return flat[..., :elements].view(*flat.shape[:2], *shape), flat[..., elements:].view(torch.float32)


def _parts(
    k_cache: torch.Tensor, v_cache: torch.Tensor
) -> tuple[tuple[torch.Tensor, torch.Tensor | None], tuple[torch.Tensor, torch.Tensor | None]]:
    """Elements and scales (None: there are none) of the two caches."""
    block_size, dim = v_cache.shape[2:]
    if v_cache.dtype is not torch.int8:
        return (k_cache, None), (v_cache, None)
    dim -= SCALE_BYTES
    return _int8_parts(k_cache, (dim, block_size)), _int8_parts(v_cache, (block_size, dim))


def _rounded(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
    """[M, heads, head_dim] in the cache's type, and the scales [M, heads] of int8."""
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        largest = torch.finfo(dtype).max
        return x.clamp(-largest, largest).to(dtype), None
    if dtype is not torch.int8:
        return x.to(dtype), None
    top = x.abs().amax(-1).float()
    scale = torch.where(x.isfinite().all(-1), top / 127.0, float("nan"))
    inverse = torch.where((top > 0) & scale.isfinite(), 127.0 / top, 0.0)
    elements = torch.where(inverse[..., None] > 0, x.float() * inverse[..., None], 0.0)
    return elements.round().to(torch.int8), scale


def _poisoned(
    k: tuple[torch.Tensor, torch.Tensor | None], v: tuple[torch.Tensor, torch.Tensor | None]
) -> tuple[tuple[torch.Tensor, torch.Tensor | None], tuple[torch.Tensor, torch.Tensor | None]]:
    """Keys of NaN and values of zero for the tokens and heads that the type cannot hold as finite numbers.

    Who sees such a token is NaN, and to all others it is nothing: a weight of 0 times a NaN would be NaN.
    """
    (keys, k_scale), (values, v_scale) = k, v
    if k_scale is not None and v_scale is not None:
        bad = ~(k_scale.isfinite() & v_scale.isfinite())
        keys, values = keys.masked_fill(bad[..., None], 0), values.masked_fill(bad[..., None], 0)
        return (keys, k_scale.masked_fill(bad, float("nan"))), (values, v_scale.masked_fill(bad, 0.0))
    bad = ~(keys.float().isfinite() & values.float().isfinite()).all(-1, keepdim=True)
    wide = (keys.float().masked_fill(bad, float("nan")), values.float().masked_fill(bad, 0.0))
    return (wide[0].to(keys.dtype), None), (wide[1].to(values.dtype), None)


def _pages(
    parts: tuple[torch.Tensor, torch.Tensor | None], pages: torch.Tensor, token_dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """The named pages with their scales applied; `token_dim` is the dimension of a page that counts tokens."""
    elements, scales = parts
    taken = elements[pages].to(dtype)
    return taken if scales is None else taken * scales[pages].to(dtype).unsqueeze(5 - token_dim)


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
        k_cache, v_cache: Of the shapes of `kv_cache_shapes`.
        slot_mapping: [M] int64: block * block_size + offset; -1 skips the token.
    """
    kept = slot_mapping >= 0
    slots = slot_mapping[kept]
    block_size = v_cache.shape[2]
    blocks, offsets = slots // block_size, slots % block_size
    (keys, k_scales), (values, v_scales) = _parts(k_cache, v_cache)
    (keys[blocks, :, :, offsets], k_scale), (values[blocks, :, offsets], v_scale) = _poisoned(
        _rounded(k[kept], k_cache.dtype), _rounded(v[kept], v_cache.dtype)
    )
    if k_scales is not None and v_scales is not None:
        assert k_scale is not None
        assert v_scale is not None
        k_scales[blocks, :, offsets] = k_scale
        v_scales[blocks, :, offsets] = v_scale


def _visible(num_queries: int, length: int, first: int, window: int, device: torch.device) -> torch.Tensor:
    """[num_queries, length - first] bool: which keys each of the last `num_queries` positions may see."""
    query = torch.arange(length - num_queries, length, device=device)[:, None]
    key = torch.arange(first, length, device=device)[None, :]
    distance = query - key
    seen = distance >= 0
    return seen & (distance < window) if window > 0 else seen


def _alibi(
    slopes: torch.Tensor, num_queries: int, length: int, first: int, kv_heads: int, dtype: torch.dtype
) -> torch.Tensor:
    """[num_queries, Hkv, G, length - first]: slope * (key - position)."""
    query = torch.arange(length - num_queries, length, device=slopes.device)
    distance = torch.arange(first, length, device=slopes.device)[None, :] - query[:, None]
    return slopes.to(dtype).view(1, kv_heads, -1, 1) * distance[:, None, None, :].to(dtype)


def _attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    softcap: float,
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of one sequence: q [n, Hq, d], keys [Hkv, d, L], values [Hkv, L, d], seen [n, L] -> [n, Hq * d].

    `bias` [n, Hkv, G, L] is added to the scores; `sinks` [Hq] are scores without a value.
    """
    num_queries, num_heads, head_dim = q.shape
    grouped = q.reshape(num_queries, keys.shape[0], -1, head_dim)  # [n, Hkv, G, d]
    scores = torch.einsum("nhgd,hdl->nhgl", grouped, keys) * scale
    if softcap > 0:
        scores = torch.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~seen[:, None, None, :], float("-inf"))
    if sinks is not None:
        sink = sinks.to(scores.dtype).view(1, keys.shape[0], -1, 1).expand(num_queries, -1, -1, 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : keys.shape[2]]
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
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
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
        sinks: [num_heads] scores that take part in the softmax and have no value.
        alibi_slopes: [num_heads] `slope * (key - position)` is added to the scores, after the cap.

    Returns:
        [M, num_heads * head_dim].
    """
    block_size = v_cache.shape[2]
    k_parts, v_parts = _parts(k_cache, v_cache)
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
        keys = _pages(k_parts, pages, 3, compute).permute(1, 2, 0, 3).flatten(2)[..., : length - first]
        values = _pages(v_parts, pages, 2, compute).transpose(0, 1).flatten(1, 2)[:, : length - first]
        seen = _visible(num_queries, length, first, window, q.device)
        bias = None
        if alibi_slopes is not None:
            bias = _alibi(alibi_slopes, num_queries, length, first, len(keys), compute)
        rows = q[begin:end].to(compute)
        out[begin:end] = _attend(rows, keys, values, seen, scale, softcap, bias, sinks).to(q.dtype)
    return out
