"""Phi-3, 3.5 and Phi-4-mini (arXiv 2404.14219): a Llama whose projections are stored fused, with LongRoPE."""

from __future__ import annotations

from octavo.layers.parts import Attention, Embedding, GatedMLP, Head, PreNorm, RMSNorm
from octavo.models.hf_config import HFConfig
from octavo.models.rope_config import scaled_positions
from octavo.models.spec import DecoderSpec, with_windows


def phi3(hf: HFConfig) -> DecoderSpec:
    hf.expect("hidden_act", "silu")
    for setting in ("attention_bias", "mlp_bias", "lm_head_bias"):
        hf.expect(setting, False)
    for setting in ("full_attn_mod", "interpolate_factor"):  # Phi-4-mini states them
        hf.expect(setting, 1)
    rope, norm = hf.rope(), RMSNorm(hf.rms_eps())
    attention = Attention(
        heads=hf.num_heads(),
        kv_heads=hf.num_kv_heads(),
        head_dim=hf.head_dim(),
        position=rope,
        sources=("qkv_proj",),
    )
    mlp = GatedMLP(hf.int("intermediate_size"), act="silu", sources=("gate_up_proj",))
    window = hf.limit("sliding_window", 0)
    return DecoderSpec(
        vocab_size=hf.int("vocab_size"),
        hidden_size=hf.int("hidden_size"),
        max_position=scaled_positions(rope, hf.int("max_position_embeddings")),
        embedding=Embedding(),
        layers=with_windows(PreNorm(attention, mlp, norm), [window] * hf.int("num_hidden_layers")),
        norm=norm,
        head=Head(tied=hf.bool("tie_word_embeddings", False)),
    )


ARCHITECTURES = {"Phi3ForCausalLM": phi3}
GGUF = {"phi3": phi3}
GGUF_NAMING = {"phi3": {"fused_gate_up": True}}

_SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "original_max_position_embeddings": 256,
    "pad_token_id": 0,
}
TINY: dict[str, dict[str, object]] = {
    "Phi3ForCausalLM": {**_SHAPE, "sliding_window": 24},
    "Phi3ForCausalLM+longrope": {
        **_SHAPE,
        "original_max_position_embeddings": 96,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 96,
            "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0],
            "long_factor": [1.0, 1.2, 1.9, 3.0, 5.0, 9.0],
        },
    },
}
