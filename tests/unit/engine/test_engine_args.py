"""EngineArgs: fields become flags; "auto" is decided once; what cannot work is refused before anything starts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.engine import default_model
from octavo.engine.args import ENGINE_FIELDS, EngineArgs
from octavo.engine.flags import synonyms
from octavo.lib.errors import CheckpointError, ConfigError

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": 300,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny")


def write(folder: Path, generation: dict[str, Any] | None = None, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def parse(*argv: str) -> EngineArgs:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    return EngineArgs.from_cli_args(parser.parse_args(argv))


def test_no_flags_are_the_defaults() -> None:
    assert parse() == EngineArgs()


def test_flags_keep_the_names_of_vllm() -> None:
    flags = """
        --model m --served-model-name a b --max-model-len 8K --kv-cache-memory-bytes 2Gi --max-num-seqs 1k
        --gpu-memory-utilization 0.5 --num-gpu-blocks-override 7 --no-enable-prefix-caching --seed 3
        --scheduling-policy priority --disable-log-stats --max-num-queued-reqs 5
    """
    args = parse(*flags.split())
    assert args == EngineArgs(
        model="m",
        served_model_name=["a", "b"],
        max_model_len=8192,
        kv_cache_memory_bytes=2 << 30,
        max_num_seqs=1000,
        memory_utilization=0.5,
        num_blocks_override=7,
        enable_prefix_caching=False,
        seed=3,
        scheduling_policy="priority",
        disable_log_stats=True,
        max_num_queued_reqs=5,
    )


@pytest.mark.parametrize("text", ["auto", "-1"])
def test_the_length_may_be_left_to_the_model(text: str) -> None:
    assert parse(f"--max-model-len={text}").max_model_len is None


def test_every_flag_has_help() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    flags = {action.dest: action.help for action in parser._actions}
    assert {field.name for field in dataclasses.fields(EngineArgs)} <= set(flags)
    assert all(flags.values())


def test_quantization_of_float_weights(model: Path) -> None:
    args = parse("--model", str(model), "-q", "int4")
    assert args == EngineArgs(model=str(model), quantization="int4")
    assert args.create_engine_config().load.quantization == "int4"
    assert EngineArgs(model=str(model)).create_engine_config().load.quantization is None


def test_quantization_must_be_what_the_checkpoint_says(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"--quantization is awq, but .* says that it is not quantised"):
        EngineArgs(model=str(model), quantization="awq").create_engine_config()


def test_a_bad_number_is_refused_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--max-num-seqs", "many")
    assert "'many' is not a number such as" in capsys.readouterr().err


def test_auto_follows_the_checkpoint(model: Path) -> None:
    config = EngineArgs(model=str(model)).create_engine_config()
    assert config.model.max_model_len == 128
    assert (config.model.dtype, config.cache.dtype) == ("bfloat16", "bfloat16")
    assert config.model.served_model_names == ("tiny", str(model))
    assert config.model.eos_token_ids == (2,)
    assert config.model.vocab_size == 300
    assert config.cache.target_tokens == 16384


@pytest.mark.parametrize(
    ("asked", "means"),
    [("fp8", "fp8_e4m3"), ("fp8_e5m2", "fp8_e5m2"), ("int8", "int8"), ("float32", "float32")],
)
def test_types_of_the_cache(model: Path, asked: str, means: str) -> None:
    config = EngineArgs(model=str(model), kv_cache_dtype=asked).create_engine_config()
    assert config.cache.dtype == means
    with pytest.raises(ConfigError, match="--kv-cache-dtype must be one of auto, float32"):
        EngineArgs(model=str(model), kv_cache_dtype="int4").create_engine_config()


def test_float32_stays_float32(tmp_path: Path) -> None:
    config = EngineArgs(model=str(write(tmp_path / "m", torch_dtype="float32"))).create_engine_config()
    assert config.cache.dtype == "float32"


@pytest.mark.parametrize(("asked", "limit"), [(None, 256), (256, 256), (100, 100)])
def test_linear_rope_scaling_stretches_the_limit(tmp_path: Path, asked: int | None, limit: int) -> None:
    """A105."""
    folder = write(tmp_path / "m", rope_scaling={"rope_type": "linear", "factor": 2.0})
    assert (
        EngineArgs(model=str(folder), max_model_len=asked).create_engine_config().model.max_model_len == limit
    )


def test_a_longer_context_is_refused_with_both_numbers(tmp_path: Path) -> None:
    """A105."""
    folder = write(tmp_path / "m", rope_scaling={"rope_type": "linear", "factor": 2.0})
    with pytest.raises(ConfigError, match=r"512.*256"):
        EngineArgs(model=str(folder), max_model_len=512).create_engine_config()


def test_generation_config_is_used_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    generation = {"temperature": 0.6, "top_p": 1.0, "top_k": 20, "max_new_tokens": 64, "eos_token_id": [2, 7]}
    folder = write(tmp_path / "m", generation)
    with caplog.at_level("INFO", logger="octavo"):
        config = EngineArgs(model=str(folder)).create_engine_config()
    assert dict(config.model.default_sampling) == {"temperature": 0.6, "top_k": 20, "max_tokens": 64}
    assert set(config.model.eos_token_ids) == {2, 7}
    assert "temperature=0.6" in caplog.text


def test_generation_config_can_be_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", {"temperature": 0.6})
    assert (
        EngineArgs(model=str(folder), generation_config="vllm").create_engine_config().model.default_sampling
        == ()
    )


def test_generation_config_can_lie_elsewhere(tmp_path: Path) -> None:
    folder, other = write(tmp_path / "m", {"temperature": 0.6}), write(tmp_path / "n", {"temperature": 0.3})
    config = EngineArgs(model=str(folder), generation_config=str(other)).create_engine_config()
    assert dict(config.model.default_sampling) == {"temperature": 0.3}
    with pytest.raises(ConfigError, match="generation_config"):
        EngineArgs(model=str(folder), generation_config=str(tmp_path)).create_engine_config()


def test_a_bad_generation_config_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        EngineArgs(model=str(write(tmp_path / "m", {"temperature": "hot"}))).create_engine_config()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 24}, "block-size must be one of"),
        ({"memory_utilization": 1.5}, "memory-utilization"),
        ({"max_num_seqs": 0}, "max-num-seqs must be at least 1"),
        ({"dtype": "int8"}, "dtype must be one of auto, .*, got 'int8'"),
        ({"quantization": "nf4"}, "quantization must be one of int8, int4, awq, gptq, .*, got 'nf4'"),
        ({"scheduling_policy": "lifo"}, "scheduling-policy must be one of fcfs, priority"),
        ({"threads": -1}, "threads must be at least 0"),
        ({"threads": 257}, "threads must be at most 256, got 257"),
        ({"max_num_batched_tokens": 16, "max_num_seqs": 32}, "max-num-batched-tokens"),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 100, "max_num_seqs": 4},
            "chunked prefill",
        ),
    ],
)
def test_what_cannot_work_is_refused(model: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineArgs(model=str(model), **settings).create_engine_config()


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="/no/such/model"):
        EngineArgs(model="/no/such/model").create_engine_config()


def test_a_name_of_a_hub_is_told_how_to_fetch_it() -> None:
    with pytest.raises(ConfigError, match="hf download some-org/some-model"):
        EngineArgs(model="some-org/some-model").create_engine_config()


def test_a_folder_without_a_configuration_names_the_gguf_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json$"):
        EngineArgs(model=str(tmp_path)).create_engine_config()
    (tmp_path / "weights.gguf").touch()
    with pytest.raises(CheckpointError, match=r"such as weights\.gguf"):
        EngineArgs(model=str(tmp_path)).create_engine_config()


def test_types_have_vllms_short_names_too(model: Path) -> None:
    assert EngineArgs(model=str(model), dtype="half").create_engine_config().model.dtype == "float16"
    assert EngineArgs(model=str(model), dtype="float").create_engine_config().model.dtype == "float32"


def test_flags_of_vllm_are_keywords_too() -> None:
    names = synonyms(EngineArgs)
    assert names["gpu_memory_utilization"] == "memory_utilization"
    assert names["num_gpu_blocks_override"] == "num_blocks_override"
    assert set(names.values()) <= ENGINE_FIELDS


def test_an_absent_default_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "PACKAGE", "no_such_package_at_all")
    with pytest.raises(ConfigError, match="make setup"):
        EngineArgs().create_engine_config()


def test_configuration_loads_neither_torch_nor_transformers(model: Path) -> None:
    code = (
        "import sys; from octavo.engine.args import EngineArgs; import octavo.engine.async_llm\n"
        f"EngineArgs(model={str(model)!r}).create_engine_config()\n"
        "sys.exit(' '.join({'torch', 'transformers', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("eos", ["2", [[2]], [{}], [True], -1, [10**9], 2.0])
def test_an_eos_id_that_is_no_token_is_refused(tmp_path: Path, eos: object) -> None:
    folder = write(tmp_path / "m", {"eos_token_id": eos})
    with pytest.raises(ConfigError, match=r"generation_config.json has the eos_token_id"):
        EngineArgs(model=str(folder)).create_engine_config()


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_nesting_without_end_is_a_damaged_file(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "m", {})
    (folder / name).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(CheckpointError, match=f"{name}: is not valid JSON"):
        EngineArgs(model=str(folder)).create_engine_config()
