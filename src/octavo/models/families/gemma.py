"""Gemma 2 (arXiv 2408.00118) and the text side of Gemma 3 (arXiv 2503.19786).

Norm weights are stored minus one, a Hugging Face convention that the GGUF rules bring back.
"""

from __future__ import annotations

import math

from octavo.layers.parts import Attention, Embedding, GatedMLP, Head, RMSNorm, Rope, Sandwich
from octavo.models.hf_config import HFConfig
from octavo.models.rope_config import scaled_positions
from octavo.models.spec import DecoderSpec, with_positions, with_windows

_ACTIVATION = "gelu_pytorch_tanh"


def gemma2(hf: HFConfig) -> DecoderSpec:
    """Every second layer, from the first on, slides."""
    rope = hf.rope()
    layers = hf.int("num_hidden_layers")
    windows = hf.layer_windows(hf.limit("sliding_window"), [index % 2 == 0 for index in range(layers)])
    limit = scaled_positions(rope, hf.int("max_position_embeddings"))
    return _gemma(hf, [rope] * layers, windows, limit, qk_norm=None)


def gemma3(hf: HFConfig) -> DecoderSpec:
    """Every sixth layer is full; sliding ones have a rope of their own. Positions are stated with scaling included."""
    full, local = hf.layer_ropes(1_000_000.0, 10_000.0)
    layers = hf.int("num_hidden_layers")
    pattern = hf.int("sliding_window_pattern", 6)
    sliding = [bool((index + 1) % pattern) for index in range(layers)]
    windows = hf.layer_windows(hf.limit("sliding_window"), sliding)
    ropes = [local if window else full for window in windows]
    return _gemma(hf, ropes, windows, hf.int("max_position_embeddings"), qk_norm=_norm(hf))


def _gemma(
    hf: HFConfig, ropes: list[Rope], windows: list[int], max_position: int, *, qk_norm: RMSNorm | None
) -> DecoderSpec:
    for setting, allowed in (
        ("hidden_act", _ACTIVATION),
        ("hidden_activation", _ACTIVATION),
        ("attention_bias", False),
        ("use_bidirectional_attention", False),
    ):
        hf.expect(setting, allowed)
    attention = Attention(
        heads=hf.num_heads(),
        kv_heads=hf.num_kv_heads(),
        head_dim=hf.head_dim(),
        position=ropes[0],
        qk_norm=qk_norm,
        softcap=hf.cap("attn_logit_softcapping", 0.0),
        scale=hf.float("query_pre_attn_scalar") ** -0.5,
    )
    block = Sandwich(attention, GatedMLP(hf.int("intermediate_size"), act="gelu_tanh"), _norm(hf))
    hidden = hf.int("hidden_size")
    return DecoderSpec(
        vocab_size=hf.int("vocab_size"),
        hidden_size=hidden,
        max_position=max_position,
        embedding=Embedding(scale=math.sqrt(hidden)),
        layers=with_positions(with_windows(block, windows), ropes),
        norm=_norm(hf),
        head=Head(tied=hf.bool("tie_word_embeddings", True), softcap=hf.cap("final_logit_softcapping", 0.0)),
    )


def _norm(hf: HFConfig) -> RMSNorm:
    return RMSNorm(hf.rms_eps(), offset=1.0)


def gemma2_gguf(hf: HFConfig) -> DecoderSpec:
    return gemma2(hf.with_defaults(query_pre_attn_scalar=_query_scalar(hf, largest=46), sliding_window=4096))


def gemma3_gguf(hf: HFConfig) -> DecoderSpec:
    pattern = 6 if "sliding_window" in hf else 1
    scalar = _query_scalar(hf, largest=62)
    return gemma3(
        hf.with_defaults(query_pre_attn_scalar=scalar, sliding_window=0, sliding_window_pattern=pattern)
    )


def _query_scalar(hf: HFConfig, *, largest: int) -> int:
    """GGUF does not state it: the head's width, but for the 27B models, known by their number of layers."""
    width, heads = hf.int("hidden_size"), hf.num_heads()
    return width // heads if hf.int("num_hidden_layers") == largest else hf.head_dim()


ARCHITECTURES = {"Gemma2ForCausalLM": gemma2, "Gemma3ForCausalLM": gemma3}
GGUF = {"gemma2": gemma2_gguf, "gemma3": gemma3_gguf}
_NORMS = {"norms_plus_one": True, "sandwich_norms": True}
GGUF_NAMING = {"gemma2": _NORMS, "gemma3": _NORMS}

_SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "sliding_window": 12,
}
TINY: dict[str, dict[str, object]] = {
    "Gemma2ForCausalLM": {
        **_SHAPE,
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 32,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "Gemma3ForCausalLM": {**_SHAPE, "num_hidden_layers": 7, "query_pre_attn_scalar": 32},
    "Gemma3ForCausalLM+scaled": {
        **_SHAPE,
        "num_hidden_layers": 7,
        "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
}
