"""What one step feeds to the model, in the shapes that the attention ops read. S sequences, M tokens, B blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Where the pages of one page group lie."""

    block_table: torch.Tensor
    """[S, B] int32: page i of a sequence holds its tokens i*block_size..; 0 is the null page."""
    slot_mapping: torch.Tensor
    """[M] int64: block * block_size + offset where this step's token is written; -1 skips it."""


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """How the M rows of a step fall into S sequences. The same for every layer but for the page group."""

    query_start: torch.Tensor
    """[S+1] int32: rows query_start[s] .. query_start[s+1] belong to sequence s."""
    seq_lens: torch.Tensor
    """[S] int32: tokens of each sequence, this step's included."""
    groups: tuple[GroupMetadata, ...]


@dataclass(frozen=True, slots=True)
class KVBinding:
    """The KV tensors of one layer (shapes: `ops.kv_cache_shapes`) and the page group that addresses them."""

    k_cache: torch.Tensor
    v_cache: torch.Tensor
    group: int


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """Rows of a step that are not looked up in the embedding, but given. E rows."""

    rows: torch.Tensor
    """[E] int64: which of the M."""
    values: torch.Tensor
    """[E, H] float32."""


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The input of `Decoder.forward`."""

    token_ids: torch.Tensor
    """[M] int64."""
    positions: torch.Tensor
    """[M] int64: absolute, from 0."""
    attention: AttentionMetadata
    kv: Sequence[KVBinding]
    """One per layer that keeps keys and values, in layer order."""
    embeds: EmbeddedRows | None = None
    """Of prompts that are given as such; such a step is walked through, not replayed."""
