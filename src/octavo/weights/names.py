"""The one table from GGUF names to Hugging Face names, for models built like Llama.

Sources: gguf-py's `tensor_mapping.py` for the names, llama.cpp's conversion/ for what happens to the values on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.weights.rules import (
    KEEP,
    AsRow,
    RenameRules,
    Rule,
    SubtractOne,
    TableRules,
    Transform,
    UndoRopePermutation,
)

HEAD = "lm_head.weight"

# Read as configuration, not as weights: the per-frequency rotary factors (Llama 3, Phi-3 LongRoPE).
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

_LAYER = "model.layers.{}."
_BIASED = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Experts are stacked in one tensor (`weights/experts.py` takes it apart), or in older files have one each.
_EXPERTS = {
    f"{role}{kind}.{{}}": f"mlp.experts.{{}}.{module}"
    for role, module in (("ffn_gate", "gate_proj"), ("ffn_up", "up_proj"), ("ffn_down", "down_proj"))
    for kind in ("", "_exps")
}
_ROUTED = {
    **_EXPERTS,
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_SHARED_GATE = "ffn_gate_inp_shexp"
_NORMS = {
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
}
# Blocks with a norm before and after each half (Gemma 2 and 3): `ffn_norm` is another norm than in the others.
_SANDWICH_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class GGUFNaming:
    """What distinguishes one family's GGUF tensors from another's. A family states its own.

    Attributes:
        rope_permuted: The converter reordered the q and k rows (GGUF architectures llama, smollm3, mistral3).
        norms_plus_one: The converter added one to every norm's weights (gemma, gemma2, gemma3).
        sandwich_norms: Each half of a block has a norm before and one after (gemma2, gemma3).
        fused_gate_up: `ffn_up` holds gate and up in one (phi3).
    """

    rope_permuted: bool = False
    norms_plus_one: bool = False
    sandwich_norms: bool = False
    fused_gate_up: bool = False


def gguf_rules(naming: GGUFNaming, *, num_heads: int, num_kv_heads: int) -> TableRules:
    """The rules for a GGUF checkpoint of a Llama-like family.

    Args:
        naming: The family's particulars.
        num_heads: Query heads; their rows are permuted head by head.
        num_kv_heads: Key heads.
    """
    norm: Transform = SubtractOne() if naming.norms_plus_one else KEEP
    table = {
        "token_embd.weight": Rule("model.embed_tokens.weight"),
        "output.weight": Rule(HEAD),
        "output_norm.weight": Rule("model.norm.weight", norm),
    }
    for role, module in (_NORMS | (_SANDWICH_NORMS if naming.sandwich_norms else {})).items():
        table[f"blk.{{}}.{role}.weight"] = Rule(f"{_LAYER}{module}.weight", norm)
    rotated = {}
    if naming.rope_permuted:
        rotated = {"attn_q": UndoRopePermutation(num_heads), "attn_k": UndoRopePermutation(num_kv_heads)}
    for role, module in _projections(naming).items():
        for kind in ("weight", "bias"):
            table[f"blk.{{}}.{role}.{kind}"] = Rule(f"{_LAYER}{module}.{kind}", rotated.get(role, KEEP))
    for role, module in _ROUTED.items():
        table[f"blk.{{}}.{role}.weight"] = Rule(f"{_LAYER}{module}.weight")
    table[f"blk.{{}}.{_SHARED_GATE}.weight"] = Rule(f"{_LAYER}mlp.shared_expert_gate.weight", AsRow())
    table |= {name: Rule(name) for name in ROPE_FACTORS}
    # Files with tied embeddings sometimes carry the head all the same.
    return TableRules(table, optional=(HEAD, *ROPE_FACTORS))


def _projections(naming: GGUFNaming) -> dict[str, str]:
    if not naming.fused_gate_up:
        return _BIASED
    return {**_BIASED, "ffn_up": "mlp.gate_up_proj"}


def hf_rules(renames: tuple[tuple[str, str], ...] = (), optional: tuple[str, ...] = ()) -> RenameRules:
    """The rules for a Hugging Face checkpoint: names as they are.

    Rotary buffers that old versions saved may be left over, and a head beside tied embeddings.

    Args:
        renames: A family's ordered substitutions (regular expression, replacement).
        optional: Regular expressions of further names that the model need not ask for.
    """
    return RenameRules(renames, (r"lm_head\.weight", r".*rotary_emb\.inv_freq", *optional))
