"""Float checkpoints rounded while they load: held to `transformers` on the rounded weights, and what is refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import gguf
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from octavo.layers.linear import Linear
from octavo.lib.errors import CheckpointError, ConfigError
from octavo.models import registry
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model
from octavo.ops import reference
from octavo.quantization import RoundingResolver, StoredTensor
from tests.models import tiny
from tests.models.gguf_export import export
from tests.models.paged import PagedRunner

NAMES = (
    "LlamaForCausalLM",
    "LlamaForCausalLM+llama3",
    "Gemma3ForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
)
PROMPT = tiny.random_tokens(40)
# Of the logits' own spread: activations rounded to 8 bits, as in test_gguf, and weights to 4.
ACTIVATIONS_SHARE, INT4_SHARE = 0.05, 0.5
FORMATS = {"int8": "q8_0", "int4": "iq4_nl"}


def load(path: Path, scheme: str | None) -> Decoder:
    hf = HFConfig.from_path(str(path))
    return load_model(str(path), hf, registry.build_spec(hf), quantization=scheme)


def saved(name: str, folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    tiny.reference(name).save_pretrained(folder)
    if dtype is not torch.float32:
        tensors = load_file(folder / "model.safetensors")
        save_file({key: value.to(dtype) for key, value in tensors.items()}, folder / "model.safetensors")
    return folder


def rounded(name: str, scheme: str) -> transformers.PreTrainedModel:
    """The reference with its matrices as `--quantization` rounds them."""
    model = copy.deepcopy(tiny.reference(name))
    for key, parameter in model.named_parameters():
        if parameter.dim() > 1:
            ends = "embed" in key or "lm_head" in key
            parameter.data = reference.quantise_weight(parameter.data, "q8_0" if ends else FORMATS[scheme])
    return model


def share(logits: torch.Tensor, expected: torch.Tensor) -> float:
    return float((logits - expected).pow(2).mean().sqrt() / expected.std())


@pytest.mark.parametrize("scheme", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_rounded_weights(name: str, scheme: str, tmp_path: Path) -> None:
    logits = PagedRunner(load(saved(name, tmp_path), scheme)).feed({0: PROMPT})[0]
    assert share(logits, tiny.reference_logits(rounded(name, scheme), PROMPT)) < ACTIVATIONS_SHARE
    limit = ACTIVATIONS_SHARE if scheme == "int8" else INT4_SHARE
    assert share(logits, tiny.reference_logits(tiny.reference(name), PROMPT)) < limit


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_checkpoints_are_rounded_too(dtype: torch.dtype, tmp_path: Path) -> None:
    halves = PagedRunner(load(saved(NAMES[0], tmp_path / "a", dtype), "int4")).feed({0: PROMPT})[0]
    floats = PagedRunner(load(saved(NAMES[0], tmp_path / "b"), "int4")).feed({0: PROMPT})[0]
    assert 0 < share(halves, floats) < 0.1


@pytest.mark.parametrize("scheme", FORMATS)
def test_formats_in_memory(scheme: str, tmp_path: Path) -> None:
    """Embedding and head are 8-bit, tied or not; a tied matrix is there once."""
    for name, tied in (("LlamaForCausalLM+llama3", True), ("LlamaForCausalLM", False)):
        decoder = load(saved(name, tmp_path / name), scheme)
        assert decoder.spec.head.tied is tied
        assert decoder.model.embed_tokens.weight.format == "q8_0"
        weights = {
            path: {weight.format for weight in layer.weights}
            for path, layer in decoder.walk()
            if isinstance(layer, Linear)
        }
        assert weights.pop("lm_head", {"q8_0"}) == {"q8_0"}
        assert set.union(*weights.values()) == {FORMATS[scheme]}


def test_a_float_gguf_is_rounded_to_the_same(tmp_path: Path) -> None:
    export(tiny.reference(NAMES[0]), tmp_path / "model.gguf", gguf.GGMLQuantizationType.F32)
    from_gguf = PagedRunner(load(tmp_path / "model.gguf", "int4")).feed({0: PROMPT})[0]
    from_folder = PagedRunner(load(saved(NAMES[0], tmp_path), "int4")).feed({0: PROMPT})[0]
    assert torch.equal(from_gguf, from_folder)


@pytest.mark.parametrize("scheme", FORMATS)
def test_a_sequence_does_not_depend_on_the_batch(scheme: str, tmp_path: Path) -> None:
    decoder = load(saved(NAMES[0], tmp_path), scheme)
    alone = PagedRunner(decoder).feed({0: PROMPT})[0]
    others = {s: tiny.random_tokens(20 + s, seed=s) for s in (0, 2, 3)}
    together = PagedRunner(decoder, sequences=4).feed({**others, 1: PROMPT})[1]
    assert torch.equal(together, alone)
    steps = PagedRunner(decoder)
    assert torch.equal(torch.cat([steps.feed({0: [token]})[0] for token in PROMPT]), alone)


def test_a_router_stays_float(tmp_path: Path) -> None:
    decoder = load(saved("MixtralForCausalLM", tmp_path), "int4")
    formats = {path: layer.weights[0].format for path, layer in decoder.walk() if isinstance(layer, Linear)}
    assert formats["model.layers.0.mlp.gate"] == "f32"
    assert formats["model.layers.0.mlp.experts.1.gate_up_proj"] == "iq4_nl"


def test_rows_of_no_whole_blocks_stay_float() -> None:
    method = RoundingResolver("int4").resolve("model.layers.0.mlp.down_proj")
    packed = method.pack({"weight": StoredTensor(torch.randn(8, 40), "f32")}, 8, 40)
    assert packed.format == "f32"


def test_what_is_quantised_already_is_refused(tmp_path: Path) -> None:
    export(tiny.reference(NAMES[0]), tmp_path / "model.gguf", gguf.GGMLQuantizationType.Q8_0)
    with pytest.raises(ConfigError, match=r"is q8_0 already: leave it out"):
        load(tmp_path / "model.gguf", "int8")


def test_a_weight_that_is_not_finite_is_named(tmp_path: Path) -> None:
    folder = saved(NAMES[0], tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name][3, 5] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.up_proj\.weight.* not finite"):
        load(folder, "int4")


LOADING = """
import json, sys
from octavo.models import registry
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model
from octavo import ops
import torch

def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) * 1024

hf = HFConfig.from_path(sys.argv[1])
spec = registry.build_spec(hf)
ops.linear(torch.zeros(1, 32), [ops.quantise_weight(torch.ones(16, 32), "q8_0")])  # threads, workspaces
before = peak()
decoder = load_model(sys.argv[1], hf, spec, quantization=sys.argv[2] or None)
print(json.dumps({"grown": peak() - before, "weights": decoder.weight_bytes}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured as Linux reports it")
@pytest.mark.parametrize("scheme", ["", *FORMATS])
def test_memory_while_loading(scheme: str, tmp_path: Path) -> None:
    """At most 1.15 times what stays: a tensor's file pages are let go of once it is packed."""
    settings = tiny.tiny_config(NAMES[0]) | {
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 8,
    }
    settings.pop("head_dim", None)
    config = transformers.LlamaConfig(**settings)
    with torch.device("meta"):
        shapes = {
            key: value.shape for key, value in transformers.LlamaForCausalLM(config).state_dict().items()
        }
    save_file(
        {key: torch.ones(shape).bfloat16() for key, shape in shapes.items()}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": [NAMES[0]]}))
    command = [sys.executable, "-c", LOADING, str(tmp_path), scheme]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["weights"] < found["grown"] * 1.1  # what is measured is the weights
    assert found["grown"] < 1.15 * found["weights"] + (8 << 20)
