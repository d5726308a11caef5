"""A decoder as one frozen value: print it, compare two, count its cache, all before a weight is read. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from octavo.layers.parts import Attention, Block, Classifier, Embedding, Head, NoHead, NoPE, RMSNorm, Rope
from octavo.types.kv import KVLayer


@dataclass(frozen=True)
class DecoderSpec:
    """All that `Decoder` needs to know to build itself."""

    vocab_size: int
    hidden_size: int
    max_position: int
    """Positions the model can tell apart, rope scaling included: the longest sequence."""
    embedding: Embedding
    layers: tuple[Block, ...]
    norm: RMSNorm
    head: Head | Classifier | NoHead

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def kv_layers(self) -> list[KVLayer]:
        """What each layer keeps for each token, in layer order."""
        return [block.mixer.kv_layer() for block in self.layers]

    def limited_to(self, max_model_len: int) -> DecoderSpec:
        """The same model for sequences of at most `max_model_len` tokens (smaller rope tables)."""
        return dataclasses.replace(self, max_position=max_model_len)

    def with_head(self, head: Classifier | NoHead) -> DecoderSpec:
        """The same model for pooling."""
        return dataclasses.replace(self, head=head)

    @property
    def is_causal_lm(self) -> bool:
        """Whether the head gives logits of tokens."""
        return isinstance(self.head, Head)

    def __str__(self) -> str:
        lines = [
            f"vocab {self.vocab_size}, hidden {self.hidden_size}, positions {self.max_position}",
            f"{self.embedding}",
        ]
        start = 0
        for block, run in groupby(self.layers):
            count = len(list(run))
            lines.append(f"layers {start}..{start + count - 1}: {block}")
            start += count
        return "\n".join([*lines, f"{self.norm}", f"{self.head}"])


def with_windows(block: Block, windows: Sequence[int]) -> tuple[Block, ...]:
    """`block` once per entry, its attention seeing that many tokens (0: all)."""
    return tuple(
        _with_mixer(block, dataclasses.replace(_attention(block), window=window)) for window in windows
    )


def with_positions(layers: Sequence[Block], positions: Sequence[Rope | NoPE]) -> tuple[Block, ...]:
    """The layers, each with its own kind of position."""
    return tuple(
        _with_mixer(block, dataclasses.replace(_attention(block), position=position))
        for block, position in zip(layers, positions, strict=True)
    )


def _attention(block: Block) -> Attention:
    assert isinstance(block.mixer, Attention)
    return block.mixer


def _with_mixer(block: Block, mixer: Attention) -> Block:
    return dataclasses.replace(block, mixer=mixer)
