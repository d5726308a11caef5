"""Qwen 2, 2.5 (arXiv 2407.10671, 2412.15115) and 3 (arXiv 2505.09388), dense and with experts."""

from __future__ import annotations

from octavo.layers.parts import FFN, Attention, Embedding, GatedMLP, Head, PreNorm, RMSNorm
from octavo.models.hf_config import HFConfig
from octavo.models.moe_config import read_moe
from octavo.models.rope_config import scaled_positions
from octavo.models.spec import DecoderSpec, with_windows


def qwen2(hf: HFConfig) -> DecoderSpec:
    return _qwen2(hf, GatedMLP(hf.int("intermediate_size"), act="silu"))


def qwen2_moe(hf: HFConfig) -> DecoderSpec:
    hf.expect("qkv_bias", True)
    width = hf.int("shared_expert_intermediate_size")
    return _qwen2(hf, _experts(hf, renormalise=hf.bool("norm_topk_prob", False), shared=width))


def qwen3(hf: HFConfig) -> DecoderSpec:
    return _qwen3(hf, GatedMLP(hf.int("intermediate_size"), act="silu"))


def qwen3_moe(hf: HFConfig) -> DecoderSpec:
    return _qwen3(hf, _experts(hf, renormalise=hf.bool("norm_topk_prob", False)))


def gguf_qwen3_moe(hf: HFConfig) -> DecoderSpec:
    """The file does not say whether weights are renormalised; llama.cpp does it."""
    return qwen3_moe(hf.with_defaults(norm_topk_prob=True))


def _experts(hf: HFConfig, *, renormalise: bool, shared: int = 0) -> FFN:
    hf.get("intermediate_size")  # of layers without experts: there are none
    return read_moe(hf, intermediate=hf.int("moe_intermediate_size"), renormalise=renormalise, shared=shared)


def _qwen2(hf: HFConfig, ffn: FFN) -> DecoderSpec:
    hf.expect("attention_bias", True)
    hf.expect("attention_out_bias", False)
    return _qwen(hf, ffn, bias=True, out_bias=False)


def _qwen3(hf: HFConfig, ffn: FFN) -> DecoderSpec:
    bias = hf.bool("attention_bias", False)
    out_bias = hf.bool("attention_out_bias", bias)
    return _qwen(hf, ffn, bias=bias, out_bias=out_bias, qk_norm=RMSNorm(hf.rms_eps()))


def _qwen(
    hf: HFConfig, ffn: FFN, *, bias: bool, out_bias: bool, qk_norm: RMSNorm | None = None
) -> DecoderSpec:
    hf.expect("hidden_act", "silu")
    hf.expect("use_mrope", False)
    rope, norm = hf.rope(), RMSNorm(hf.rms_eps())
    attention = Attention(
        heads=hf.num_heads(),
        kv_heads=hf.num_kv_heads(),
        head_dim=hf.head_dim(),
        position=rope,
        bias=bias,
        out_bias=out_bias,
        qk_norm=qk_norm,
    )
    block = PreNorm(attention, ffn, norm)
    return DecoderSpec(
        vocab_size=hf.int("vocab_size"),
        hidden_size=hf.int("hidden_size"),
        max_position=scaled_positions(rope, hf.int("max_position_embeddings")),
        embedding=Embedding(),
        layers=with_windows(block, _windows(hf)),
        norm=norm,
        head=Head(tied=hf.bool("tie_word_embeddings", False)),
    )


def _windows(hf: HFConfig) -> list[int]:
    """Layers from `max_window_layers` on slide, if sliding is switched on at all."""
    layers = hf.int("num_hidden_layers")
    sliding, window, first = (
        hf.bool("use_sliding_window", False),
        hf.limit("sliding_window", 0),
        hf.int("max_window_layers", 0),
    )
    return hf.layer_windows(window, [sliding and index >= first for index in range(layers)])


ARCHITECTURES = {
    "Qwen2ForCausalLM": qwen2,
    "Qwen2MoeForCausalLM": qwen2_moe,
    "Qwen3ForCausalLM": qwen3,
    "Qwen3MoeForCausalLM": qwen3_moe,
}
GGUF = {"qwen2": qwen2, "qwen2moe": qwen2_moe, "qwen3": qwen3, "qwen3moe": gguf_qwen3_moe}

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
    "Qwen2ForCausalLM": _SHAPE,
    "Qwen2ForCausalLM+window": {
        **_SHAPE,
        "use_sliding_window": True,
        "sliding_window": 20,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "Qwen2MoeForCausalLM": {
        **_SHAPE,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 96,
    },
    "Qwen3ForCausalLM": {**_SHAPE, "head_dim": 32},
    "Qwen3ForCausalLM+bias": {**_SHAPE, "head_dim": 16, "attention_bias": True},
    "Qwen3MoeForCausalLM": {
        **_SHAPE,
        "head_dim": 32,
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    },
    "Qwen3MoeForCausalLM+plain": {
        **_SHAPE,
        "head_dim": 32,
        "num_experts": 17,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 32,
    },
}
