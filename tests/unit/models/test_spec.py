"""Specs as values: printed, compared, counted."""

from __future__ import annotations

import dataclasses

import pytest

from octavo.layers import parts
from octavo.layers.parts import Attention, NoPE, Rope
from octavo.models.hf_config import HFConfig
from octavo.models.registry import build_spec
from octavo.models.spec import DecoderSpec

SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}


def spec(architecture: str, **settings: object) -> DecoderSpec:
    return build_spec(HFConfig(SHAPE | {"architectures": [architecture]} | settings, "config.json"))


def windows(of: DecoderSpec) -> list[int]:
    return [layer.window for layer in of.kv_layers()]


def positions(of: DecoderSpec) -> list[Rope | NoPE]:
    mixers = [block.mixer for block in of.layers]
    return [mixer.position for mixer in mixers if isinstance(mixer, Attention)]


def test_kv_layers() -> None:
    layers = spec("LlamaForCausalLM", num_hidden_layers=3).kv_layers()
    assert [(layer.num_kv_heads, layer.head_dim, layer.window) for layer in layers] == [(2, 16, 0)] * 3


def test_gemma2_slides_on_even_layers() -> None:
    gemma = spec(
        "Gemma2ForCausalLM", num_hidden_layers=4, head_dim=16, sliding_window=128, query_pre_attn_scalar=16
    )
    assert windows(gemma) == [128, 0, 128, 0]


def test_gemma3_ropes_follow_its_windows() -> None:
    gemma = spec(
        "Gemma3ForCausalLM",
        num_hidden_layers=7,
        head_dim=16,
        sliding_window=128,
        query_pre_attn_scalar=16,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    assert windows(gemma) == [128] * 5 + [0, 128]
    thetas = [position.theta for position in positions(gemma) if isinstance(position, Rope)]
    assert thetas == [1e4] * 5 + [1e6, 1e4]
    assert positions(gemma)[5] == Rope(1e6, 16, parts.LinearScaling(8.0))
    assert gemma.max_position == 512


def test_smollm3_leaves_every_fourth_layer_without_positions() -> None:
    found = positions(spec("SmolLM3ForCausalLM", num_hidden_layers=8))
    assert [isinstance(position, NoPE) for position in found] == [False, False, False, True] * 2
    stated = positions(spec("SmolLM3ForCausalLM", num_hidden_layers=2, no_rope_layers=[0, 1]))
    assert [isinstance(position, NoPE) for position in stated] == [True, False]


def test_qwen2_slides_only_where_switched_on() -> None:
    settings = {"num_hidden_layers": 3, "sliding_window": 100, "max_window_layers": 1}
    assert windows(spec("Qwen2ForCausalLM", **settings)) == [0, 0, 0]
    assert windows(spec("Qwen2ForCausalLM", use_sliding_window=True, **settings)) == [0, 100, 100]


def test_mistral_without_a_window() -> None:
    assert windows(spec("MistralForCausalLM", num_hidden_layers=1, sliding_window=None)) == [0]


def test_limited_to_changes_nothing_else() -> None:
    whole = spec("LlamaForCausalLM", num_hidden_layers=2)
    short = whole.limited_to(100)
    assert short.max_position == 100
    assert dataclasses.replace(short, max_position=512) == whole


def test_printing_joins_equal_layers() -> None:
    text = str(spec("LlamaForCausalLM", num_hidden_layers=30))
    assert "layers 0..29: PreNorm(" in text
    assert text.count("Attention(") == 1


@pytest.mark.parametrize(
    "part",
    [part for part in vars(parts).values() if dataclasses.is_dataclass(part)],
    ids=lambda part: part.__name__,
)
def test_parts_stay_small_and_frozen(part: type) -> None:
    assert len(dataclasses.fields(part)) <= 14
    assert part.__dataclass_params__.frozen  # type: ignore[attr-defined]
