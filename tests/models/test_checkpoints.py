"""Hugging Face checkpoints in their shapes: storage types, shards, ties, rope scaling (cases A81, A83, A105)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo import ops
from octavo.lib.errors import CheckpointError
from octavo.models import registry
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model
from tests.models import tiny
from tests.models.paged import PagedRunner, generate

NAME = "LlamaForCausalLM"
PROMPT = tiny.random_tokens(40)


def saved(name: str, folder: Path) -> Path:
    tiny.reference(name).save_pretrained(folder)
    return folder


def logits(folder: Path) -> torch.Tensor:
    return PagedRunner(tiny.load(folder)).feed({0: PROMPT})[0]


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def shard(folder: Path) -> dict[str, torch.Tensor]:
    """Cut the checkpoint in two with an index; returns its tensors."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {name: files[index % 2] for index, name in enumerate(sorted(tensors))}
    for file in files:
        save_file({name: tensors[name] for name, place in places.items() if place == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return tensors


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM+llama3", "Gemma3ForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM"]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_storage(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Weights stay in 16 bits, arithmetic is float32: as `transformers` in float32 on the rounded weights."""
    tiny.rounded_reference(name, dtype).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    matrices = {key: value.to(dtype) if value.dim() > 1 else value for key, value in tensors.items()}
    save_file(matrices, tmp_path / "model.safetensors")
    decoder = tiny.load(tmp_path, 96)
    [tokens], [rows] = generate(decoder, [PROMPT], 24)
    expected = tiny.reference_logits(tiny.rounded_reference(name, dtype), tokens[: len(rows)])
    # On tiles of bfloat16 an activation has 16 bits of mantissa (csrc/kernels/linear_float_tiles.h).
    on_tiles = dtype is torch.bfloat16 and ops.isa() == "amx"
    assert (rows - expected).abs().max() < (1e-3 if on_tiles else 1e-4)
    assert tokens[40:] == expected[39:].argmax(dim=-1).tolist()
    assert decoder.weight_bytes < 0.6 * sum(4 * value.numel() for value in tensors.values())


def test_shards_take_only_what_the_index_assigns(tmp_path: Path) -> None:
    """A81: a stale copy in the other shard and a consolidated file beside change nothing."""
    folder = saved(NAME, tmp_path)
    clean = logits(folder)
    tensors = shard(folder)
    stale = {name: torch.zeros_like(value) for name, value in tensors.items()}
    second = load_file(folder / "model-00002-of-00002.safetensors")
    save_file(stale | second, folder / "model-00002-of-00002.safetensors")
    save_file(stale, folder / "consolidated.safetensors")
    assert torch.equal(logits(folder), clean)


def test_tied_head_needs_no_tensor(tmp_path: Path) -> None:
    """A83, first half; and a head beside tied embeddings is not read."""
    folder = saved("LlamaForCausalLM+llama3", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in tensors
    alone = logits(folder)
    save_file(tensors | {"lm_head.weight": torch.zeros(256, 64)}, folder / "model.safetensors")
    assert torch.equal(logits(folder), alone)


def test_untied_head_must_be_there(tmp_path: Path) -> None:
    """A83, second half."""
    folder = saved("LlamaForCausalLM+llama3", tmp_path)
    change_config(folder, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight.* is missing"):
        tiny.load(folder)


def test_linear_rope_scaling_stretches_the_limit(tmp_path: Path) -> None:
    """A105: 128 positions times 2; a 200-token prompt works as in the reference."""
    folder = saved("LlamaForCausalLM+linear", tmp_path)
    decoder = tiny.load(folder)
    assert decoder.spec.max_position == 256
    prompt = tiny.random_tokens(200)
    expected = tiny.reference_logits(tiny.reference("LlamaForCausalLM+linear"), prompt)
    assert (PagedRunner(decoder).feed({0: prompt})[0] - expected).abs().max() < 1e-4


def test_spelling_of_transformers_4(tmp_path: Path) -> None:
    """`rope_theta`, `rope_scaling` with `type`, `torch_dtype`: the same model."""
    folder = saved("LlamaForCausalLM+llama3", tmp_path / "new")
    old = Path(shutil.copytree(folder, tmp_path / "old"))
    config = json.loads((old / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    config["torch_dtype"] = config.pop("dtype")
    (old / "config.json").write_text(json.dumps(config))
    specs = [registry.build_spec(HFConfig.from_path(str(path))) for path in (folder, old)]
    assert specs[0] == specs[1]
    assert torch.equal(logits(old), logits(folder))


def test_dummy_weights_are_the_same_each_time(tmp_path: Path) -> None:
    hf = HFConfig.from_path(str(saved(NAME, tmp_path)))
    runs = []
    for _ in range(2):
        decoder = load_model(str(tmp_path), hf, registry.build_spec(hf), load_format="dummy")
        runs.append(PagedRunner(decoder).feed({0: PROMPT})[0])
    assert torch.isfinite(runs[0]).all()
    assert torch.equal(runs[0], runs[1])
