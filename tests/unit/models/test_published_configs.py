"""Settings as published checkpoints state them (the facts of their config.json): none is stumbled over."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.layers.parts import Attention, Llama3Scaling, LongRope
from octavo.models.hf_config import HFConfig
from octavo.models.registry import build_spec
from octavo.models.spec import DecoderSpec

LLAMA_3_2_1B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
QWEN2_5_0_5B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GEMMA_3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "initializer_range": 0.02,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 262144,
}
PHI_4_MINI: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"],
    "attention_bias": False,
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
    "embd_pdrop": 0.0,
    "full_attn_mod": 1,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "interpolate_factor": 1,
    "intermediate_size": 8192,
    "lm_head_bias": False,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "phi3",
    "num_attention_heads": 24,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75,
    "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"long_factor": [1.5] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
    "rope_theta": 10000.0,
    "sliding_window": 262144,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 200064,
}


def built(settings: dict[str, Any]) -> tuple[DecoderSpec, Attention]:
    spec = build_spec(HFConfig(settings, "config.json"))
    mixer = spec.layers[0].mixer
    assert isinstance(mixer, Attention)
    return spec, mixer


@pytest.mark.parametrize("settings", [LLAMA_3_2_1B, QWEN2_5_0_5B, GEMMA_3_1B, PHI_4_MINI])
def test_shape(settings: dict[str, Any]) -> None:
    spec, mixer = built(settings)
    assert spec.num_layers == settings["num_hidden_layers"]
    assert spec.max_position == settings["max_position_embeddings"]
    assert (mixer.heads, mixer.kv_heads) == (settings["num_attention_heads"], settings["num_key_value_heads"])
    assert spec.head.tied
    assert HFConfig(settings, "config.json").torch_dtype == "bfloat16"


def test_llama_3_2() -> None:
    _, mixer = built(LLAMA_3_2_1B)
    assert mixer.position.scaling == Llama3Scaling(32.0, 1.0, 4.0, 8192)  # type: ignore[union-attr]
    assert HFConfig(LLAMA_3_2_1B, "config.json").eos_token_ids == (128001, 128008, 128009)


def test_qwen_2_5_has_biases_and_no_window() -> None:
    _, mixer = built(QWEN2_5_0_5B)
    assert (mixer.bias, mixer.out_bias, mixer.window) == (True, False, 0)


def test_gemma_3() -> None:
    spec, mixer = built(GEMMA_3_1B)
    assert (mixer.scale, mixer.softcap, spec.head.softcap) == (1 / 16, 0.0, 0.0)
    assert [layer.window for layer in spec.kv_layers()][:7] == [512] * 5 + [0, 512]


def test_phi_4_mini() -> None:
    _, mixer = built(PHI_4_MINI)
    assert mixer.position.rot_dim == 96  # type: ignore[union-attr]
    scaling = mixer.position.scaling  # type: ignore[union-attr]
    assert isinstance(scaling, LongRope)
    assert scaling.original_max_position == 4096
    # sqrt(1 + ln(131072 / 4096) / ln(4096))
    assert scaling.attention_factor == pytest.approx(1.1902380714238083)
