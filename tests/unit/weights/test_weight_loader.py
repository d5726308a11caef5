"""Strict both ways: nothing missing, nothing left over, nothing twice, every shape right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.unit.weights.checkpoint_files import GGUFImage, f32_tensor

from octavo.lib.errors import CheckpointError
from octavo.weights.loader import load_weights, open_source
from octavo.weights.names import GGUFNaming, gguf_rules, hf_rules
from octavo.weights.source import RawTensor

EMBED, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


class Sink:
    """Takes what it expects."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.taken: dict[str, torch.Tensor] = {}

    def expected(self) -> Mapping[str, tuple[int, ...]]:
        return self.shapes

    def assign(self, name: str, raw: RawTensor) -> None:
        assert name not in self.taken
        assert raw.shape == self.shapes[name]
        self.taken[name] = raw.data.clone()


def _model(*, tied: bool) -> Sink:
    return Sink({EMBED: (4, 2), NORM: (2,)} | ({} if tied else {HEAD: (4, 2)}))


def _tensors(*names: str) -> dict[str, torch.Tensor]:
    return {name: torch.randn(2) if name == NORM else torch.randn(4, 2) for name in names}


def _load(folder: Path, tensors: dict[str, torch.Tensor], model: Sink) -> str:
    """Save and load; returns the file's name."""
    path = folder / "model.safetensors"
    save_file(tensors, path)
    load_weights(model, open_source(path), hf_rules())
    return str(path)


def test_loads_everything_and_reports_progress(tmp_path: Path) -> None:
    tensors = _tensors(EMBED, NORM, HEAD)
    save_file(tensors, tmp_path / "model.safetensors")
    model, seen = _model(tied=False), []
    load_weights(model, open_source(tmp_path), hf_rules(), lambda done, total: seen.append((done, total)))
    assert model.taken.keys() == tensors.keys()
    assert all(torch.equal(model.taken[name], value) for name, value in tensors.items())
    assert [total for _, total in seen] == [72] * 3
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == 72


def test_a83_tied_and_untied_heads(tmp_path: Path) -> None:
    tied = _model(tied=True)
    _load(tmp_path, _tensors(EMBED, NORM), tied)
    assert tied.taken.keys() == {EMBED, NORM}
    with pytest.raises(CheckpointError, match="is missing") as caught:
        _load(tmp_path, _tensors(EMBED, NORM), _model(tied=False))
    assert (caught.value.tensor, caught.value.file) == (HEAD, str(tmp_path / "model.safetensors"))
    both = _model(tied=True)
    _load(tmp_path, _tensors(EMBED, NORM, HEAD), both)  # a copy of the tied head is not a fault
    assert both.taken.keys() == {EMBED, NORM}


def test_left_over_missing_and_misshapen(tmp_path: Path) -> None:
    path = str(tmp_path / "model.safetensors")
    cases = {
        "model.extra.weight": (
            _tensors(EMBED, NORM) | {"model.extra.weight": torch.randn(3)},
            "has no place",
        ),
        NORM: (_tensors(EMBED), "is missing"),
        EMBED: (
            _tensors(NORM) | {EMBED: torch.randn(4, 3)},
            r"has shape \[4, 3\], but the model has \[4, 2\]",
        ),
    }
    for name, (tensors, message) in cases.items():
        model = _model(tied=True)
        with pytest.raises(CheckpointError, match=message) as caught:
            _load(tmp_path, tensors, model)
        assert (caught.value.tensor, caught.value.file) == (name, path)
        assert not model.taken  # names are settled before anything is assigned


def test_rotary_buffers_may_be_left_over(tmp_path: Path) -> None:
    model = _model(tied=True)
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.randn(4)}
    _load(tmp_path, _tensors(EMBED, NORM) | extra, model)
    assert model.taken.keys() == {EMBED, NORM}


def test_two_tensors_for_one_place(tmp_path: Path) -> None:
    save_file(_tensors(EMBED, NORM) | {"old." + EMBED: torch.randn(4, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is model\.embed_tokens\.weight, as is") as caught:
        load_weights(_model(tied=True), open_source(tmp_path), hf_rules(((r"^old\.", ""),)))
    assert caught.value.tensor in {EMBED, "old." + EMBED}


def test_gguf_end_to_end(tmp_path: Path) -> None:
    image = GGUFImage(
        [],
        [
            f32_tensor("token_embd.weight", (2, 4), range(8)),
            f32_tensor("output_norm.weight", (2,), (1.5, 0.5)),
            f32_tensor("rope_freqs.weight", (2,), (1, 8)),
            f32_tensor("blk.0.attn_q.weight", (1, 4), (0, 1, 2, 3)),
        ],
    )
    rules = gguf_rules(GGUFNaming(rope_permuted=True, norms_plus_one=True), num_heads=1, num_kv_heads=1)
    query = "model.layers.0.self_attn.q_proj.weight"
    model = Sink({EMBED: (4, 2), NORM: (2,), query: (4, 1)})
    load_weights(model, open_source(image.write(tmp_path / "a.gguf")), rules)
    assert model.taken[EMBED].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert model.taken[NORM].tolist() == [0.5, -0.5]
    assert model.taken[query].flatten().tolist() == [0, 2, 1, 3]


def test_gguf_tensor_without_a_rule(tmp_path: Path) -> None:
    path = GGUFImage([], [f32_tensor("blk.0.ssm_a", (1,), (1,))]).write(tmp_path / "a.gguf")
    rules = gguf_rules(GGUFNaming(), num_heads=1, num_kv_heads=1)
    with pytest.raises(CheckpointError, match="has no place") as caught:
        load_weights(_model(tied=True), open_source(path), rules)
    assert (caught.value.tensor, caught.value.file) == ("blk.0.ssm_a", str(path))
