"""Sequences laid out in pages for the attention tests: the same tokens, whatever the batch, the chunks and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from octavo import ops


@dataclass(frozen=True)
class Heads:
    """Shape of one attention layer."""

    query: int
    key: int
    dim: int


@dataclass(frozen=True)
class Tokens:
    """q, k, v of a whole sequence: [length, heads, head_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def tokens_of(seed: int, length: int, heads: Heads) -> Tokens:
    """Sequence number `seed`."""
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> torch.Tensor:
        return torch.randn(length, count, heads.dim, generator=generator)

    return Tokens(draw(heads.query), draw(heads.key), draw(heads.key))


@dataclass
class PagedBatch:
    """Pages of several sequences. Every element that no token wrote is NaN: reading one shows."""

    sequences: list[Tokens]
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor

    @classmethod
    def of(
        cls,
        sequences: list[Tokens],
        *,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        shuffle: int = 0,
    ) -> PagedBatch:
        """Lay the sequences out; `shuffle` seeds the order of the pages. Page 0 stays free."""
        pages = [-(-s.k.shape[0] // block_size) for s in sequences]
        order = torch.randperm(sum(pages), generator=torch.Generator().manual_seed(shuffle)).int() + 1
        table = torch.zeros(len(sequences), max(pages), dtype=torch.int32)
        for row, own in zip(table, order.split(pages), strict=True):
            row[: len(own)] = own
        heads, head_dim = sequences[0].k.shape[1:]
        shapes = ops.kv_cache_shapes(sum(pages) + 1, heads, head_dim, block_size, dtype)
        k_cache, v_cache = (torch.empty(shape, dtype=dtype) for shape in shapes)
        for cache in (
            k_cache,
            v_cache,
        ):  # all bits set: NaN in every float type and as the scale of an int8 page
            cache.view(torch.uint8).fill_(255)
        return cls(sequences, k_cache, v_cache, table)

    def slots(self, sequence: int, begin: int, end: int) -> torch.Tensor:
        """Where tokens begin..end of a sequence are written."""
        block_size = self.v_cache.shape[2]
        positions = torch.arange(begin, end)
        return (
            self.block_table[sequence, positions // block_size].long() * block_size + positions % block_size
        )

    def step(self, begins: Sequence[int], ends: Sequence[int], **options: Any) -> list[torch.Tensor]:
        """Write tokens begin..end of every sequence and attend from them, in one call: [end - begin, Hq * d] each."""
        spans = list(zip(self.sequences, begins, ends, strict=True))
        k = torch.cat([s.k[b:e] for s, b, e in spans])
        v = torch.cat([s.v[b:e] for s, b, e in spans])
        slots = torch.cat([self.slots(i, b, e) for i, (_, b, e) in enumerate(spans)])
        ops.write_kv(k, v, self.k_cache, self.v_cache, slots)
        counts = [e - b for _, b, e in spans]
        out = self.attend(torch.cat([s.q[b:e] for s, b, e in spans]), counts, ends, **options)
        return list(out.split(counts))

    def attend(
        self, q: torch.Tensor, counts: Sequence[int], lengths: Sequence[int], **options: Any
    ) -> torch.Tensor:
        """Paged attention of `counts` rows a sequence, the caches as they are."""
        query_start = torch.tensor([0, *counts]).cumsum(0).int()
        seq_lens = torch.tensor(lengths, dtype=torch.int32)
        options.setdefault("scale", q.shape[2] ** -0.5)
        return ops.paged_attention(
            q, self.k_cache, self.v_cache, query_start, seq_lens, self.block_table, **options
        )

    def prefill(self, chunk: int, **options: Any) -> list[torch.Tensor]:
        """All tokens of every sequence in chunks, all sequences in each step: [length, Hq * d] each."""
        parts: list[list[torch.Tensor]] = [[] for _ in self.sequences]
        lengths = [s.k.shape[0] for s in self.sequences]
        for begin in range(0, max(lengths), chunk):
            begins = [min(begin, n) for n in lengths]
            ends = [min(begin + chunk, n) for n in lengths]
            for rows, out in zip(parts, self.step(begins, ends, **options), strict=True):
                rows.append(out)
        return [torch.cat(rows) for rows in parts]
