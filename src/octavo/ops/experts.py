"""Mixtures of experts: which experts a token takes, and what they make of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.ops import reference
from octavo.ops.activation import code_of
from octavo.ops.dispatch import built_module, native_for, new_output
from octavo.ops.operands import address, require
from octavo.ops.packing import PackedWeight

MAX_EXPERTS = 1024


class ExpertWeights:
    """The experts of one layer: (gate, up, down) of each, gate and up [inner, hidden], down [hidden, inner].

    `inner` may differ from expert to expert.

    Raises:
        ValueError: there are none, or shapes do not fit together.
    """

    __slots__ = ("hidden", "native", "weights")

    def __init__(self, weights: Sequence[tuple[PackedWeight, PackedWeight, PackedWeight]]) -> None:
        require(0 < len(weights) <= MAX_EXPERTS, "weights hold {} experts, must be 1 to 1024", len(weights))
        self.weights = tuple(weights)
        self.hidden = weights[0][0].cols
        for number, (gate, up, down) in enumerate(weights):
            inner = down.cols
            shapes = [(weight.rows, weight.cols) for weight in (gate, up, down)]
            fits = [(inner, self.hidden)] * 2 + [(self.hidden, inner)]
            require(shapes == fits, "expert {} has weights of {}, must be {}", number, shapes, fits)
        self.native = built_module().Experts([tuple(w.native for w in three) for three in weights])

    def __len__(self) -> int:
        return len(self.weights)


def route(
    logits: torch.Tensor, top_k: int, *, renormalise: bool, shared: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The experts of each token and their weights.

    The `top_k` largest logits win, the lower id where they are equal; a weight is the softmax over all experts. A NaN or
    an infinity among the logits makes the row's weights NaN.

    Args:
        logits: [M, experts] float32, one more column with `shared`; rows may be strided.
        top_k: Experts a token.
        renormalise: Whether the chosen weights are divided by their sum.
        shared: The last logit is that of an expert, with id `experts`, that every token takes besides, weighted by the
            logit's sigmoid (Qwen2-MoE).

    Returns:
        Ids int32 and weights float32, both [M, top_k (+ 1)], the largest logit first, the shared expert last.
    """
    rows, width = logits.shape
    experts = width - shared
    require(0 < experts <= MAX_EXPERTS, "logits have {} experts, must be 1 to 1024", experts)
    require(0 < top_k <= experts, "top_k is {}, must be 1 to the {} experts", top_k, experts)
    native = native_for(logits)
    if native is None:
        return reference.route(logits, top_k, renormalise=renormalise, shared=shared)
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    slots = top_k + shared
    ids, weights = new_output(rows, slots).view(torch.int32), new_output(rows, slots)
    native.route(
        logits.data_ptr(),
        logits.stride(0),
        rows,
        experts,
        top_k,
        renormalise,
        shared,
        ids.data_ptr(),
        weights.data_ptr(),
    )
    return ids, weights


def experts(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, experts: ExpertWeights, act: str
) -> torch.Tensor:
    """Sum over a token's slots, in ascending order, of weight * down(act(gate(x)) * up(x)) of the slot's expert.

    A row's bits depend on its own x, ids and weights only.

    Args:
        x: [M, hidden] float32; rows may be strided.
        ids: [M, slots] int32.
        weights: [M, slots] float32.
        act: `silu`, `gelu_tanh` or `gelu`.

    Raises:
        ValueError: an id outside of [0, number of experts).
    """
    code = code_of(act)
    native = native_for(x)
    if native is None:
        return reference.experts(x, ids, weights, experts, act)
    require(
        x.dim() == 2 and x.shape[1] == experts.hidden,
        "x must be [rows, {}], got {}",
        experts.hidden,
        tuple(x.shape),
    )
    if x.stride(1) != 1:
        x = x.contiguous()
    rows, slots = x.shape[0], ids.shape[1]
    chosen = address("ids", ids, torch.int32, (rows, slots))
    shares = address("weights", weights, torch.float32, (rows, slots))
    out = new_output(rows, experts.hidden)
    if rows > 0:
        native.experts(
            experts.native, x.data_ptr(), x.stride(0), rows, chosen, shares, slots, out.data_ptr(), code
        )
    return out
