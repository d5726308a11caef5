"""SmolLM3: a Llama where every fourth layer has no positions (NoPE, arXiv 2501.18795)."""

from __future__ import annotations

from octavo.layers.parts import Attention, Embedding, GatedMLP, Head, NoPE, PreNorm, RMSNorm
from octavo.models.hf_config import HFConfig
from octavo.models.rope_config import scaled_positions
from octavo.models.spec import DecoderSpec, with_positions, with_windows


def smollm3(hf: HFConfig) -> DecoderSpec:
    hf.expect("hidden_act", "silu")
    hf.get("max_window_layers")  # written by the model's authors, read by no one
    bias, rope, norm = hf.bool("attention_bias", False), hf.rope(2_000_000.0), RMSNorm(hf.rms_eps())
    attention = Attention(
        heads=hf.num_heads(),
        kv_heads=hf.num_kv_heads(),
        head_dim=hf.head_dim(),
        position=rope,
        bias=bias,
        out_bias=hf.bool("attention_out_bias", bias),
    )
    mlp = GatedMLP(hf.int("intermediate_size"), act="silu", bias=hf.bool("mlp_bias", False))
    has_rope = _rotated_layers(hf)
    sliding, window = hf.bool("use_sliding_window", False), hf.limit("sliding_window", 0)
    windows = hf.layer_windows(window, [sliding and window > 0 and not rotated for rotated in has_rope])
    layers = with_windows(PreNorm(attention, mlp, norm), windows)
    return DecoderSpec(
        vocab_size=hf.int("vocab_size"),
        hidden_size=hf.int("hidden_size"),
        max_position=scaled_positions(rope, hf.int("max_position_embeddings")),
        embedding=Embedding(),
        layers=with_positions(layers, [rope if rotated else NoPE() for rotated in has_rope]),
        norm=norm,
        head=Head(tied=hf.bool("tie_word_embeddings", True)),
    )


def _rotated_layers(hf: HFConfig) -> list[bool]:
    """Which layers have a rope: stated one by one, or all but each `no_rope_layer_interval`-th."""
    layers, interval = hf.int("num_hidden_layers"), hf.int("no_rope_layer_interval", 4)
    stated = hf.list("no_rope_layers", int)
    if stated is None:
        return [(index + 1) % interval != 0 for index in range(layers)]
    if len(stated) != layers:
        raise hf.error("no_rope_layers", f"must have {layers} entries, but has {len(stated)}")
    return [bool(flag) for flag in stated]


ARCHITECTURES = {"SmolLM3ForCausalLM": smollm3}
GGUF = {"smollm3": smollm3}
GGUF_NAMING = {"smollm3": {"rope_permuted": True}}

TINY: dict[str, dict[str, object]] = {
    "SmolLM3ForCausalLM": {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}
