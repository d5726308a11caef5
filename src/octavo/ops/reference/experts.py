"""Twins of `octavo.ops.experts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.ops.reference.activation import act_mul
from octavo.ops.reference.linear import linear

if TYPE_CHECKING:
    from octavo.ops.experts import ExpertWeights


def route(
    logits: torch.Tensor, top_k: int, *, renormalise: bool, shared: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `octavo.ops.route`."""
    count = logits.shape[1] - shared
    ids = logits[:, :count].sort(dim=1, descending=True, stable=True).indices[:, :top_k]
    weights = logits[:, :count].softmax(dim=1).gather(1, ids)
    if renormalise:
        weights = weights / weights.sum(dim=1, keepdim=True)
    if shared:
        ids = torch.nn.functional.pad(ids, (0, 1), value=count)
        weights = torch.cat((weights, logits[:, count:].sigmoid()), dim=1)
    return ids.int(), weights


def experts(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, experts: ExpertWeights, act: str
) -> torch.Tensor:
    """See `octavo.ops.experts`."""
    out = torch.zeros_like(x)
    for slot in range(ids.shape[1]):
        for number, (gate, up, down) in enumerate(experts.weights):
            rows = (ids[:, slot] == number).nonzero()[:, 0]
            if len(rows) == 0:
                continue
            inner = act_mul(linear(x[rows], [gate, up]), act)
            out[rows] += weights[rows, slot, None] * linear(inner, [down])
    return out
