"""How mixer, feed-forward and norms of a block are wired to the residual stream. The pictures are in `parts.py`."""

from __future__ import annotations

import torch

from octavo import ops
from octavo.attention.metadata import ForwardBatch
from octavo.layers.base import BuildContext, SequenceLayer
from octavo.layers.parts import PreNorm, Sandwich


class PreNormLayer(SequenceLayer):
    """See `PreNorm`."""

    def __init__(self, part: PreNorm, context: BuildContext) -> None:
        self.input_layernorm = part.norm.build(context.hidden_size)
        self.self_attn = part.mixer.build(context)
        self.post_attention_layernorm = part.norm.build(context.hidden_size)
        self.mlp = part.ffn.build(context)

    def forward(self, x: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        x = ops.add(x, self.self_attn.forward(self.input_layernorm.forward(x), batch))
        return ops.add(x, self.mlp.forward(self.post_attention_layernorm.forward(x)))


class SandwichLayer(SequenceLayer):
    """See `Sandwich`."""

    def __init__(self, part: Sandwich, context: BuildContext) -> None:
        self.input_layernorm = part.norm.build(context.hidden_size)
        self.self_attn = part.mixer.build(context)
        self.post_attention_layernorm = part.norm.build(context.hidden_size)
        self.pre_feedforward_layernorm = part.norm.build(context.hidden_size)
        self.mlp = part.ffn.build(context)
        self.post_feedforward_layernorm = part.norm.build(context.hidden_size)

    def forward(self, x: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        mixed = self.self_attn.forward(self.input_layernorm.forward(x), batch)
        x = ops.add(x, self.post_attention_layernorm.forward(mixed))
        fed = self.mlp.forward(self.pre_feedforward_layernorm.forward(x))
        return ops.add(x, self.post_feedforward_layernorm.forward(fed))
