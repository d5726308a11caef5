"""OLMoE (Muennighoff et al. 2024, arXiv 2409.02060): a Llama of many small experts, with normed queries and keys."""

from __future__ import annotations

from octavo.layers.parts import Attention, Embedding, Head, PreNorm, RMSNorm
from octavo.models.hf_config import HFConfig
from octavo.models.moe_config import read_moe
from octavo.models.rope_config import scaled_positions
from octavo.models.spec import DecoderSpec


def olmoe(hf: HFConfig) -> DecoderSpec:
    hf.expect("hidden_act", "silu")
    if hf.get("clip_qkv") is not None:
        raise hf.unsupported("clip_qkv", "is set; projections are not clipped here")
    bias, rope, norm = hf.bool("attention_bias", False), hf.rope(), RMSNorm(hf.rms_eps())
    attention = Attention(
        heads=hf.num_heads(),
        kv_heads=hf.num_kv_heads(),
        head_dim=hf.head_dim(),
        position=rope,
        bias=bias,
        out_bias=hf.bool("attention_out_bias", bias),
        qk_norm=norm,
        norm_heads_together=True,
    )
    moe = read_moe(hf, intermediate=hf.int("intermediate_size"), renormalise=hf.bool("norm_topk_prob", False))
    return DecoderSpec(
        vocab_size=hf.int("vocab_size"),
        hidden_size=hf.int("hidden_size"),
        max_position=scaled_positions(rope, hf.int("max_position_embeddings")),
        embedding=Embedding(),
        layers=(PreNorm(attention, moe, norm),) * hf.int("num_hidden_layers"),
        norm=norm,
        head=Head(tied=hf.bool("tie_word_embeddings", False)),
    )


ARCHITECTURES = {"OlmoeForCausalLM": olmoe}
GGUF = {"olmoe": olmoe}

TINY: dict[str, dict[str, object]] = {
    "OlmoeForCausalLM": {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "eos_token_id": 2,
    },
}
