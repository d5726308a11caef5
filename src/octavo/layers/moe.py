"""Mixtures of experts."""

from __future__ import annotations

import torch

from octavo import ops
from octavo.layers.base import BuildContext, LayerList, TokenLayer
from octavo.layers.linear import Linear
from octavo.layers.mlp import GatedMLPLayer
from octavo.layers.parts import GatedMLP, MoE


class MoELayer(TokenLayer):
    """See `MoE`. The experts are layers in the tree, for their weights' names and methods, but run together in one op."""

    def __init__(self, part: MoE, context: BuildContext) -> None:
        scores = {"gate": part.experts} | ({"shared_expert_gate": 1} if part.shared else {})
        self.gate = Linear(context.hidden_size, scores, bias=False)
        expert, shared = GatedMLP(part.intermediate, part.act), GatedMLP(part.shared, part.act)
        self.experts = LayerList([GatedMLPLayer(expert, context) for _ in range(part.experts)])
        self.shared_expert = GatedMLPLayer(shared, context) if part.shared else None
        self._part = part
        self._weights: ops.ExpertWeights | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        part = self._part
        ids, weights = ops.route(
            self.gate.forward(x), part.top_k, renormalise=part.renormalise, shared=part.shared > 0
        )
        return ops.experts(x, ids, weights, self._loaded(), part.act)

    def _loaded(self) -> ops.ExpertWeights:
        """The weights of all experts, gathered when they are first needed: after loading."""
        if self._weights is None:
            everyone = [*self.experts.items, *([self.shared_expert] if self.shared_expert else [])]
            self._weights = ops.ExpertWeights([_weights_of(expert) for expert in everyone])
        return self._weights


def _weights_of(expert: GatedMLPLayer) -> tuple[ops.PackedWeight, ops.PackedWeight, ops.PackedWeight]:
    [gate, up], [down] = expert.gate_up_proj.weights, expert.down_proj.weights
    return gate, up, down
