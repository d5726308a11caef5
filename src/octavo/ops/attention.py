"""Paged attention and the writes of its cache."""

from __future__ import annotations

from typing import NamedTuple

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for, new_output
from octavo.ops.operands import address, dense_heads, require
from octavo.ops.reference.attention import SCALE_BYTES

BLOCK_SIZES = (16, 32, 64, 128)
MAX_HEAD_DIM = 512
_CACHE_TYPES = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
    torch.float8_e4m3fn: 3,
    torch.float8_e5m2: 4,
    torch.int8: 5,
}

Shape4 = tuple[int, int, int, int]


def kv_cache_shapes(
    num_blocks: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Shape4, Shape4]:
    """Shapes of the key and the value cache: keys keep tokens in the last dimension, values keep head_dim there.

    An int8 cache keeps a float32 scale for each token and head: a head's part of a page is its head_dim * block_size
    bytes, then block_size scales. Its shapes count those bytes as four more of head_dim.
    """
    require(block_size in BLOCK_SIZES, "block_size is {}, must be one of {}", block_size, BLOCK_SIZES)
    require(0 < head_dim <= MAX_HEAD_DIM, "head_dim is {}, must be at most {}", head_dim, MAX_HEAD_DIM)
    dim = head_dim + (SCALE_BYTES if dtype is torch.int8 else 0)
    return (num_blocks, num_kv_heads, dim, block_size), (num_blocks, num_kv_heads, block_size, dim)


def _cache_head_dim(v_cache: torch.Tensor) -> int:
    return v_cache.shape[3] - (SCALE_BYTES if v_cache.dtype is torch.int8 else 0)


def _cache_code(k_cache: torch.Tensor, v_cache: torch.Tensor) -> int:
    """The kernels' code of the caches' type, once both are as `kv_cache_shapes` has them, dense and on the CPU."""
    code = _CACHE_TYPES.get(v_cache.dtype)
    blocks, heads, block_size, head_dim = v_cache.shape
    fits = k_cache.shape == (blocks, heads, head_dim, block_size) and k_cache.dtype is v_cache.dtype
    dense = k_cache.is_contiguous() and v_cache.is_contiguous() and k_cache.is_cpu and v_cache.is_cpu
    if code is None or not fits or not dense or block_size not in BLOCK_SIZES or head_dim > MAX_HEAD_DIM:
        raise ValueError(
            "k_cache and v_cache must be contiguous CPU tensors of the shapes of kv_cache_shapes and one dtype of "
            f"float32, bfloat16, float16, float8_e4m3fn, float8_e5m2, int8; got {k_cache.dtype} {tuple(k_cache.shape)} and "
            f"{v_cache.dtype} {tuple(v_cache.shape)}"
        )
    return code


class _Rows(NamedTuple):
    """The tensors that say where the rows of a step belong, and what the kernel is told of them."""

    query_start: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    addresses: tuple[int, int, int]
    num_seqs: int
    table_stride: int


_NO_ROWS = torch.empty(0, dtype=torch.int32)
_last_rows = _Rows(_NO_ROWS, _NO_ROWS, _NO_ROWS, (0, 0, 0), 0, 0)


def _rows(query_start: torch.Tensor, seq_lens: torch.Tensor, block_table: torch.Tensor) -> _Rows:
    """Check the three tensors; every layer of a step brings the same ones, so the last answer is kept."""
    global _last_rows
    last = _last_rows
    if last.block_table is block_table and last.seq_lens is seq_lens and last.query_start is query_start:
        return last
    num_seqs, table_stride = block_table.shape
    addresses = (
        address("query_start", query_start, torch.int32, (num_seqs + 1,)),
        address("seq_lens", seq_lens, torch.int32, (num_seqs,)),
        address("block_table", block_table, torch.int32, (num_seqs, table_stride)),
    )
    _last_rows = _Rows(query_start, seq_lens, block_table, addresses, num_seqs, table_stride)
    return _last_rows


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store the keys and values of M tokens in their pages, rounded to the cache's type (nearest even).

    8-bit floats hold what is beyond their largest number as that number; int8 divides by the largest magnitude of the
    token's head over 127. Of a token and head that are not finite then, the key is NaN and the value 0: whoever attends to
    it is NaN, and nobody before it.

    Args:
        k, v: [M, num_kv_heads, head_dim]; rows may be strided.
        k_cache, v_cache: Of the shapes of `kv_cache_shapes`.
        slot_mapping: [M] int64: block * block_size + offset; -1 skips the token.

    Raises:
        ValueError: A slot outside of the cache, or shapes that do not fit.
    """
    native = native_for(k)
    if native is None:
        return reference.write_kv(k, v, k_cache, v_cache, slot_mapping)
    k, v = dense_heads("k", k), dense_heads("v", v)
    blocks, heads, block_size, _ = v_cache.shape
    head_dim = _cache_head_dim(v_cache)
    tokens = k.shape[0]
    require(k.shape == (tokens, heads, head_dim), "k has shape {}, the cache {}", k.shape, (heads, head_dim))
    require(v.shape == k.shape and v.dtype is torch.float32, "v must have k's shape and be float32")
    code = _cache_code(k_cache, v_cache)
    native.write_kv(
        k.data_ptr(),
        v.data_ptr(),
        k.stride(0),
        v.stride(0),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        address("slot_mapping", slot_mapping, torch.int64, (tokens,)),
        tokens,
        blocks,
        heads,
        head_dim,
        block_size,
        code,
    )
    return None


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

    A row's result has the same bits whatever the other rows, the chunks, the pages and the threads.

    Args:
        q: [M, num_heads, head_dim]; rows may be strided. The rows of sequence s sit at its last positions.
        k_cache, v_cache: As in `write_kv`; this step's tokens are already there.
        query_start: [S+1] int32: rows query_start[s] .. query_start[s+1] belong to sequence s.
        seq_lens: [S] int32: tokens of each sequence, this step's included.
        block_table: [S, B] int32: the pages of each sequence in order.
        scale: Factor on the scores.
        window: Key j is visible to position i iff 0 <= i - j < window; 0: no limit.
        softcap: Scores become `softcap * tanh(score / softcap)`; 0: off.
        sinks: [num_heads] a score more in each row's softmax that has no value: the weights then sum to less than 1.
        alibi_slopes: [num_heads] `slope * (key - position)` is added to the scores, after the cap.

    Returns:
        [M, num_heads * head_dim].

    Raises:
        ValueError: Lengths that contradict each other, a page outside of the cache, or shapes that do not fit.
    """
    native = native_for(q)
    if native is None:
        return reference.paged_attention(
            q,
            k_cache,
            v_cache,
            query_start,
            seq_lens,
            block_table,
            scale=scale,
            window=window,
            softcap=softcap,
            sinks=sinks,
            alibi_slopes=alibi_slopes,
        )
    q = dense_heads("q", q)
    rows, heads, head_dim = q.shape
    blocks, kv_heads, block_size, _ = v_cache.shape
    cache_dim = _cache_head_dim(v_cache)
    require(cache_dim == head_dim, "q has head_dim {}, the cache {}", head_dim, cache_dim)
    require(heads % kv_heads == 0, "{} query heads must be a multiple of {} key heads", heads, kv_heads)
    code = _cache_code(k_cache, v_cache)
    step = _rows(query_start, seq_lens, block_table)
    out = new_output(rows, heads * head_dim)
    native.paged_attention(
        q.data_ptr(),
        q.stride(0),
        out.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        *step.addresses,
        rows,
        step.num_seqs,
        step.table_stride,
        blocks,
        heads,
        kv_heads,
        head_dim,
        block_size,
        code,
        scale,
        softcap,
        window,
        0 if sinks is None else address("sinks", sinks, torch.float32, (heads,)),
        0 if alibi_slopes is None else address("alibi_slopes", alibi_slopes, torch.float32, (heads,)),
    )
    return out
