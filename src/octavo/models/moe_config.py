"""Settings of mixtures of experts in their spellings."""

from __future__ import annotations

from octavo.layers.parts import MoE
from octavo.models.config_values import ConfigValues

_SOFTMAX = 1  # llama.cpp's number of the scoring


def read_moe(hf: ConfigValues, *, intermediate: int, renormalise: bool, shared: int = 0) -> MoE:
    """The experts of a model in which every layer has them."""
    hf.expect("expert_gating_func", _SOFTMAX)
    hf.expect("decoder_sparse_step", 1)
    hf.expect("mlp_only_layers", [])
    experts, top_k = hf.int("num_experts", hf.int("num_local_experts", 0)), hf.int("num_experts_per_tok")
    if not 0 < top_k <= experts:
        raise hf.error("num_experts_per_tok", f"is {top_k}, must be 1 to the {experts} experts")
    return MoE(
        experts=experts,
        top_k=top_k,
        intermediate=intermediate,
        act="silu",
        renormalise=renormalise,
        shared=shared,
    )
