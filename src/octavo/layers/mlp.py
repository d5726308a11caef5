"""Feed-forward layers."""

from __future__ import annotations

import torch

from octavo import ops
from octavo.layers.base import BuildContext, TokenLayer
from octavo.layers.linear import Linear
from octavo.layers.parts import GatedMLP


class GatedMLPLayer(TokenLayer):
    """down(act(gate) * up)."""

    def __init__(self, part: GatedMLP, context: BuildContext) -> None:
        rows = 2 * part.intermediate // len(part.sources)
        self.gate_up_proj = Linear(context.hidden_size, dict.fromkeys(part.sources, rows), bias=part.bias)
        self.down_proj = Linear(part.intermediate, {"down_proj": context.hidden_size}, bias=part.bias)
        self._act = part.act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        return self.down_proj.forward(ops.act_mul(self.gate_up_proj.forward(x), self._act))
