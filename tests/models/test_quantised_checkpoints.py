"""Checkpoints of other tools: logits are those of the floats that their weights stand for, and the rest is refused by name."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.engine.args import EngineArgs
from octavo.layers.linear import Linear
from octavo.lib.errors import CheckpointError, ConfigError, UnsupportedModelError
from octavo.models import registry
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model
from tests.models import tiny
from tests.models.paged import PagedRunner
from tests.models.quantised_checkpoints import (
    INTS,
    KINDS,
    compressed_config,
    fp8_config,
    gptq,
    gptq_config,
    reference_for,
    wide_llama,
    write,
)

PROMPT = tiny.random_tokens(40)
# Of the logits' own spread: activations rounded to 8 bits in blocks of 32, or not at all.
ACTIVATIONS_SHARE, FLOAT_SHARE = 0.05, 1e-5
FORMATS = {
    "awq-128": "int4_g128",
    "awq-32": "int4_g32",
    "gptq-128": "int4_g128",
    "gptq-64-asymmetric": "int4_g32",
    "gptq-row": "int4_g128",
    "gptq-v2": "int4_g32",
    "gptq-8": "int8_g128",
    "w4a16": "int4_g128",
    "w4a16-asymmetric": "int4_g32",
    "w8a8": "int8_g128",
    "w8a8-tensor": "int8_g128",
    "fp8-tensor": "e4m3_g128",
    "fp8-block": "e4m3_g128",
    "fp8-channel": "e4m3_g128",
    "fp8-block-compressed": "e4m3_g128",
}


def load(path: Path, asked: str | None = None, load_format: str = "auto") -> Decoder:
    hf = HFConfig.from_path(str(path))
    return load_model(str(path), hf, registry.build_spec(hf), quantization=asked, load_format=load_format)


def share(logits: torch.Tensor, expected: torch.Tensor) -> float:
    return float((logits - expected).pow(2).mean().sqrt() / expected.std())


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_dequantised_weights(kind: str, tmp_path: Path) -> None:
    floats = write(reference_for(kind), KINDS[kind], tmp_path)
    decoder = load(tmp_path)
    formats = {
        path: {weight.format for weight in layer.weights}
        for path, layer in decoder.walk()
        if isinstance(layer, Linear)
    }
    assert formats.pop("lm_head") == {"f32"}
    assert set.union(*formats.values()) == {FORMATS[kind]}
    expected = tiny.reference_logits(floats, PROMPT)
    limit = FLOAT_SHARE if kind.startswith("fp8") else ACTIVATIONS_SHARE
    logits = PagedRunner(decoder).feed({0: PROMPT})[0]
    assert share(logits, expected) < limit
    replayed = PagedRunner(decoder, recorded=True).feed({0: PROMPT})[0]
    assert torch.equal(replayed, logits)
    steps = PagedRunner(decoder)
    assert torch.equal(torch.cat([steps.feed({0: [token]})[0] for token in PROMPT]), logits)


@pytest.mark.parametrize("kind", ["awq-128", "gptq-128", "w8a8", "fp8-block"])
def test_asking_for_what_it_is(kind: str, tmp_path: Path) -> None:
    write(reference_for(kind), KINDS[kind], tmp_path)
    method = str(KINDS[kind].config["quant_method"])
    logits = PagedRunner(load(tmp_path, method)).feed({0: PROMPT})[0]
    assert torch.equal(logits, PagedRunner(load(tmp_path)).feed({0: PROMPT})[0])
    for other in ("int4", "awq" if method != "awq" else "gptq"):
        with pytest.raises(
            ConfigError, match=rf"--quantization is {other}, but .* is quantised with {method}"
        ):
            load(tmp_path, other)
    with pytest.raises(ConfigError, match="load_format is 'dummy'"):
        load(tmp_path, load_format="dummy")


def test_asking_for_what_it_is_not(tmp_path: Path) -> None:
    tiny.reference("LlamaForCausalLM").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"--quantization is awq, but .* says that it is not quantised"):
        load(tmp_path, "awq")


@pytest.mark.parametrize("kind", ["awq-32", "gptq-v2", "w4a16-asymmetric", "w8a8", "fp8-channel"])
def test_a_mixture_of_experts(kind: str, tmp_path: Path) -> None:
    """Every expert is quantised, the router is not; AutoAWQ's list says `gate`, which is part of `gate_proj`."""
    floats = write(
        tiny.reference("Qwen3MoeForCausalLM"), KINDS[kind], tmp_path, modules_to_not_convert=["gate"]
    )
    logits = PagedRunner(load(tmp_path)).feed({0: PROMPT})[0]
    assert share(logits, tiny.reference_logits(floats, PROMPT)) < 2 * ACTIVATIONS_SHARE


def test_what_some_matrices_lack(tmp_path: Path) -> None:
    """A float matrix between quantised ones, zero biases of AutoGPTQ, scales for activations."""
    kind = KINDS["gptq-128"]
    model = wide_llama()
    write(model, kind, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.self_attn.k_proj"
    for suffix in ("qweight", "qzeros", "scales", "g_idx"):
        del tensors[f"{name}.{suffix}"]
    tensors[f"{name}.weight"] = model.get_parameter(f"{name}.weight").data.clone()
    tensors["model.layers.1.mlp.up_proj.bias"] = torch.zeros(352)
    tensors["model.layers.1.mlp.up_proj.input_scale"] = torch.tensor(0.5)
    save_file(tensors, tmp_path / "model.safetensors")
    decoder = load(tmp_path)
    layers = dict(decoder.walk())
    qkv = layers["model.layers.0.self_attn.qkv_proj"]
    assert isinstance(qkv, Linear)
    assert [weight.format for weight in qkv.weights] == ["int4_g128", "f32", "int4_g128"]
    assert bool(PagedRunner(decoder).feed({0: PROMPT})[0].isfinite().all())
    tensors["model.layers.1.mlp.up_proj.bias"][3] = 1.0
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"up_proj\.bias.* has no place in this model"):
        load(tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", None])
@pytest.mark.parametrize("kind", ["awq-32", "gptq-128"])
def test_a86_dtype_auto_runs_whatever_the_checkpoint_says(
    kind: str, dtype: str | None, tmp_path: Path
) -> None:
    """What the platform computes in and what the method wants are the same: one rule, so the two cannot contradict."""
    floats = write(reference_for(kind), KINDS[kind], tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config = {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")}
    (tmp_path / "config.json").write_text(json.dumps(config | ({"torch_dtype": dtype} if dtype else {})))
    args = EngineArgs(model=str(tmp_path), dtype="auto", skip_tokenizer_init=True)
    settings = args.create_engine_config()
    assert settings.model.dtype == (dtype or "float32")
    logits = PagedRunner(load(tmp_path)).feed({0: PROMPT})[0]
    assert share(logits, tiny.reference_logits(floats, PROMPT)) < ACTIVATIONS_SHARE


@pytest.mark.parametrize("kind", ["awq-128", "gptq-128"])
def test_a87_modules_left_unquantised_are_loaded_as_they_are(kind: str, tmp_path: Path) -> None:
    """`modules_to_not_convert: [o_proj]` with plain weights: the logits are those of the floats."""
    model = reference_for(kind)
    meant = copy.deepcopy(write(model, KINDS[kind], tmp_path, modules_to_not_convert=["o_proj"]))
    tensors = load_file(tmp_path / "model.safetensors")
    plain = {name: value for name, value in model.named_parameters() if name.endswith("o_proj.weight")}
    for name, value in plain.items():
        tensors = {key: t for key, t in tensors.items() if not key.startswith(name.removesuffix("weight"))}
        tensors[name] = value.data.clone()
        meant.get_parameter(name).data.copy_(value.data)
    save_file(tensors, tmp_path / "model.safetensors")
    decoder = load(tmp_path)
    formats = {
        weight.format
        for path, layer in decoder.walk()
        if isinstance(layer, Linear) and path.endswith("o_proj")
        for weight in layer.weights
    }
    assert len(plain) == 3
    assert formats == {"f32"}
    logits = PagedRunner(decoder).feed({0: PROMPT})[0]
    assert share(logits, tiny.reference_logits(meant, PROMPT)) < ACTIVATIONS_SHARE


@pytest.mark.parametrize("kind", ["awq-128", "gptq-128", "w4a16", "w8a8", "fp8-block"])
def test_a87_a_tensor_with_no_home_and_a_module_with_no_tensor_are_errors(kind: str, tmp_path: Path) -> None:
    write(reference_for(kind), KINDS[kind], tmp_path)
    clean = load_file(tmp_path / "model.safetensors")
    module = "model.layers.1.self_attn.o_proj"
    # `weight_shape` says nothing that the others do not, and may be anywhere.
    own = [name for name in clean if name.startswith(f"{module}.") and not name.endswith("weight_shape")]
    for name in own:  # a second module of the same kind that the model does not have
        save_file(
            clean | {name.replace("o_proj", "x_proj"): clean[name].clone()}, tmp_path / "model.safetensors"
        )
        with pytest.raises(CheckpointError, match=r"self_attn\.x_proj"):
            load(tmp_path)
    save_file({n: t for n, t in clean.items() if n not in own}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.o_proj"):
        load(tmp_path)
    for name in own:
        save_file({n: t for n, t in clean.items() if n != name}, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.o_proj"):
            load(tmp_path)


@pytest.mark.parametrize("kind", ["awq-128", "gptq-128", "w4a16", "w8a8", "fp8-channel"])
def test_a87_plain_and_quantised_tensors_of_one_module_are_refused(kind: str, tmp_path: Path) -> None:
    """Which of the two was meant cannot be known."""
    model = reference_for(kind)
    write(model, KINDS[kind], tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.self_attn.o_proj.weight"
    tensors[name] = model.get_parameter(name).data.clone()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.o_proj"):
        load(tmp_path)


def test_columns_in_the_order_of_activations_are_refused(tmp_path: Path) -> None:
    write(wide_llama(), KINDS["gptq-128"], tmp_path, desc_act=True)
    load(tmp_path)  # in order all the same
    tensors = load_file(tmp_path / "model.safetensors")
    g_idx = tensors["model.layers.1.mlp.down_proj.g_idx"]
    g_idx[0], g_idx[200] = g_idx[200].clone(), g_idx[0].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.down_proj\..* \(desc_act\)"):
        load(tmp_path)


def test_8_bits_with_zero_points_are_refused(tmp_path: Path) -> None:
    kind = replace(KINDS["gptq-8"], quantise=partial(gptq, group=128, bits=8, symmetric=False))
    write(wide_llama(), kind, tmp_path)
    with pytest.raises(CheckpointError, match=r"sym is false"):
        load(tmp_path)


def test_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    write(wide_llama(), KINDS["fp8-block"], tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name].view(torch.uint8)[3, 7] = 0xFF
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"mlp\.up_proj\..* not finite"):
        load(tmp_path)


def test_integers_without_a_word_about_them_are_refused(tmp_path: Path) -> None:
    write(wide_llama(), KINDS["w8a8"], tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if "scale" not in name},
        tmp_path / "model.safetensors",
    )
    config = HFConfig.from_path(str(tmp_path))
    plain = HFConfig({k: v for k, v in config.values.items() if k != "quantization_config"}, config.origin)
    with pytest.raises(UnsupportedModelError, match="is stored as I8, which is not supported"):
        load_model(str(tmp_path), plain, registry.build_spec(plain))


PACKED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
REFUSED = [
    ({"quant_method": "bitsandbytes"}, "quant_method' is 'bitsandbytes'; supported are awq, gptq"),
    (gptq_config(128, bits=3), "quantization_config.bits' is 3; supported are 4 and 8"),
    (gptq_config(128, bits=2), "bits' is 2"),
    (gptq_config(128, checkpoint_format="marlin"), "checkpoint_format' is 'marlin'"),
    (gptq_config(128, is_marlin_format=True), "is_marlin_format' is True"),
    (gptq_config(48), "group_size' is 48; supported are -1 and multiples of 32"),
    (gptq_config(32, bits=8), "group_size' is 32; with 8 bits"),
    (gptq_config(128, dynamic={"+:.*down.*": {"bits": 8}}), "dynamic' gives modules settings of their own"),
    (gptq_config(128, rotation="hadamard"), "not known to .*: quantization_config.rotation"),
    ({**KINDS["awq-128"].config, "version": "gemv"}, "version' is 'gemv'"),
    ({**KINDS["awq-128"].config, "zero_point": False}, "zero_point' is False"),
    ({**KINDS["awq-128"].config, "bits": 3}, "bits' is 3"),
    (fp8_config(fmt="e5m2"), "fmt' is 'e5m2'"),
    (fp8_config(weight_block_size=[128, 64]), r"weight_block_size' is \[128, 64\]; supported are \[n, 128\]"),
    (compressed_config("nvfp4-pack-quantized", None, **PACKED), "format' is 'nvfp4-pack-quantized'"),
    (compressed_config("pack-quantized", None, **{**PACKED, "num_bits": 8}), "weights.num_bits' is 8"),
    (compressed_config("pack-quantized", None, **PACKED, actorder="group"), "weights.actorder' is 'group'"),
    (
        compressed_config("pack-quantized", {**INTS, "num_bits": 4}, **PACKED),
        "input_activations.num_bits' is below 8",
    ),
    (
        {
            **compressed_config("int-quantized", INTS, type="int", strategy="channel"),
            "kv_cache_scheme": {"a": 1},
        },
        "kv_cache_scheme' is not supported",
    ),
    (
        {**KINDS["w8a8"].config, "config_groups": {"group_0": {"input_activations": INTS, "weights": None}}},
        "weights' is null: schemes for activations alone",
    ),
    ({**KINDS["w8a8"].config, "config_groups": {}}, "config_groups' has 0 groups"),
    ({**KINDS["w8a8"].config, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config' is not"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_has_no_kernel_is_refused_by_name(config: dict[str, object], message: str) -> None:
    values = wide_llama().config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    hf = HFConfig(values | {"quantization_config": config}, "config.json")
    with pytest.raises(UnsupportedModelError, match=message):
        registry.build_spec(hf)
