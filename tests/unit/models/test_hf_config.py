"""Configurations: typed reads, spellings, and settings that nobody honours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.models.hf_config import HFConfig, generation_config
from octavo.models.registry import build_spec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


def config(**changes: object) -> HFConfig:
    return HFConfig(LLAMA | changes, "config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "64"}, "'hidden_size' must be a whole number, but is '64'"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"hidden_size": True}, "'hidden_size' must be a whole number"),
        ({"hidden_size": -64}, "'hidden_size' must not be negative"),
        ({"tie_word_embeddings": 1}, "'tie_word_embeddings' must be true or false"),
        ({"rms_norm_eps": "tiny"}, "'rms_norm_eps' must be a number"),
        ({"num_key_value_heads": 3}, "'num_attention_heads'.* multiple of num_key_value_heads"),
        ({"num_attention_heads": 0}, "'num_attention_heads'"),
        ({"rope_scaling": [1]}, "'rope_scaling' must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "'rope_scaling.factor' is missing"),
        ({"architectures": []}, "'architectures' must name one"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        build_spec(config(**changes))
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "'hidden_act' is 'relu'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'rope_scaling.rope_type' is 'dynamic'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'rope_scaling.rope_type' is 'yarn'"),
        ({"residual_multiplier": 0.2}, "not known to LlamaForCausalLM: residual_multiplier"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "default", "mrope_section": [1]}}, "rope_scaling.mrope_section"),
        (
            {"architectures": ["NoSuchModel"]},
            "'NoSuchModel' is not supported; supported are .*LlamaForCausalLM",
        ),
    ],
)
def test_what_is_not_honoured_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        build_spec(config(**changes))


def test_harmless_settings_pass() -> None:
    spec = build_spec(
        config(
            transformers_version="4.40.0",
            use_cache=True,
            pad_token_id=0,
            attention_dropout=0.0,
            _name_or_path="x",
            new_switch=None,
        )
    )
    assert spec == build_spec(config())


@pytest.mark.parametrize(
    ("scaling", "limit"),
    [
        (None, 128),
        ({"type": "linear", "factor": 2.0}, 256),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
            128,
        ),
    ],
)
def test_longest_sequence(scaling: dict[str, object] | None, limit: int) -> None:
    """A105: linear scaling stretches the limit; Llama 3's limit has it in already."""
    assert build_spec(config(rope_scaling=scaling)).max_position == limit


def test_both_spellings_of_rope_are_one_spec() -> None:
    old = config(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 4.0})
    new = config(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5})
    assert build_spec(old) == build_spec(new)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "float32"),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.bfloat16"}, "bfloat16"),
    ],
)
def test_dtype(changes: dict[str, object], name: str) -> None:
    assert config(**changes).torch_dtype == name


def test_unknown_dtype() -> None:
    with pytest.raises(UnsupportedModelError, match="'float8_e4m3fn'"):
        config(dtype="float8_e4m3fn").torch_dtype  # noqa: B018


def test_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"eos_token_id": 7}))
    assert generation_config(str(tmp_path)) == {}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9], "top_k": 5}))
    assert HFConfig.from_path(str(tmp_path)).eos_token_ids == (7, 9)
    assert generation_config(str(tmp_path))["top_k"] == 5


@pytest.mark.parametrize(
    ("content", "message"), [("{", "not valid JSON"), ("[]", "JSON object"), (None, "has no config.json")]
)
def test_damaged_files(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message) as error:
        HFConfig.from_path(str(tmp_path))
    assert "config.json" in str(error.value)
