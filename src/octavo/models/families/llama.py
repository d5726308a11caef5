"""Llama 1-3 and what shares its shape (Mistral, Mixtral, SmolLM 1 and 2, ...).

Touvron et al. 2023 (arXiv 2302.13971); Jiang et al. 2023 (arXiv 2310.06825) for Mistral's sliding window, 2024 (arXiv
2401.04088) for Mixtral's experts.
"""

from __future__ import annotations

from octavo.layers.parts import FFN, Attention, Embedding, GatedMLP, Head, PreNorm, RMSNorm
from octavo.models.hf_config import HFConfig
from octavo.models.moe_config import read_moe
from octavo.models.rope_config import scaled_positions
from octavo.models.spec import DecoderSpec, with_windows


def llama(hf: HFConfig) -> DecoderSpec:
    return _llama(hf, _mlp(hf))


def mistral(hf: HFConfig) -> DecoderSpec:
    return _llama(hf, _mlp(hf), window=hf.limit("sliding_window"))


def mixtral(hf: HFConfig) -> DecoderSpec:
    moe = read_moe(hf, intermediate=hf.int("intermediate_size"), renormalise=True)
    return _llama(hf, moe, window=hf.limit("sliding_window", 0))


def gguf_llama(hf: HFConfig) -> DecoderSpec:
    """llama.cpp's name for all of them."""
    return mixtral(hf) if "num_experts" in hf else llama(hf)


def _mlp(hf: HFConfig) -> FFN:
    return GatedMLP(hf.int("intermediate_size"), act="silu", bias=hf.bool("mlp_bias", False))


def _llama(hf: HFConfig, ffn: FFN, window: int = 0) -> DecoderSpec:
    """A Llama; some Mistrals see only `window` tokens back in every layer."""
    hf.expect("hidden_act", "silu")
    hf.expect("rope_interleaved", False)
    bias, rope, norm = hf.bool("attention_bias", False), hf.rope(), RMSNorm(hf.rms_eps())
    attention = Attention(
        heads=hf.num_heads(),
        kv_heads=hf.num_kv_heads(),
        head_dim=hf.head_dim(),
        position=rope,
        bias=bias,
        out_bias=hf.bool("attention_out_bias", bias),
    )
    return DecoderSpec(
        vocab_size=hf.int("vocab_size"),
        hidden_size=hf.int("hidden_size"),
        max_position=scaled_positions(rope, hf.int("max_position_embeddings")),
        embedding=Embedding(),
        layers=with_windows(PreNorm(attention, ffn, norm), [window] * hf.int("num_hidden_layers")),
        norm=norm,
        head=Head(tied=hf.bool("tie_word_embeddings", False)),
    )


ARCHITECTURES = {"LlamaForCausalLM": llama, "MistralForCausalLM": mistral, "MixtralForCausalLM": mixtral}
GGUF = {"llama": gguf_llama}
GGUF_NAMING = {"llama": {"rope_permuted": True}}
HF_RENAMES = {
    "MixtralForCausalLM": (
        (r"\.block_sparse_moe\.", ".mlp."),
        (r"\.w1\.", ".gate_proj."),
        (r"\.w2\.", ".down_proj."),
        (r"\.w3\.", ".up_proj."),
    )
}

_SHAPE: dict[str, object] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
TINY: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": _SHAPE,
    "LlamaForCausalLM+llama3": {
        **_SHAPE,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "LlamaForCausalLM+linear": {
        **_SHAPE,
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    },
    "LlamaForCausalLM+bias": {**_SHAPE, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    "MistralForCausalLM": {**_SHAPE, "head_dim": 32, "sliding_window": 24},
    "MixtralForCausalLM": {**_SHAPE, "num_local_experts": 5, "num_experts_per_tok": 2},
    "MixtralForCausalLM+window": {
        **_SHAPE,
        "num_local_experts": 4,
        "num_experts_per_tok": 3,
        "sliding_window": 24,
        "tie_word_embeddings": True,
    },
}
