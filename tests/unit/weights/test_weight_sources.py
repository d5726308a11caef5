"""Sources: GGUF, safetensors (single, sharded) and dummy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.unit.weights.checkpoint_files import TensorSpec, f32, raw_safetensors, small_gguf

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.lib.gguf import GGMLType, GGUFFile
from octavo.weights.dummy import DummySource
from octavo.weights.gguf import GGUFSource
from octavo.weights.loader import open_source
from octavo.weights.safetensors import INDEX, SafetensorsSource
from octavo.weights.source import RawDType

CLEAN = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0], [4.0]])}


def _sharded(folder: Path) -> None:
    """`a` and `b` in two shards, with their index."""
    save_file({"a": CLEAN["a"]}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": CLEAN["b"]}, folder / "model-00002-of-00002.safetensors")
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": weight_map}))


def _values(source: SafetensorsSource) -> dict[str, torch.Tensor]:
    return {name: source.get(name).data for name in source.names()}


def _assert_clean(source: SafetensorsSource) -> None:
    values = _values(source)
    assert values.keys() == CLEAN.keys()
    assert all(torch.equal(values[name], CLEAN[name]) for name in CLEAN)


def test_gguf_floats_and_blocks(tmp_path: Path) -> None:
    path = small_gguf().write(tmp_path / "a.gguf")
    source = open_source(path)
    assert isinstance(source, GGUFSource)
    norm, query = (source.get(name) for name in source.names())
    assert (norm.dtype, norm.shape, norm.file) == (RawDType.F32, (3,), str(path))
    assert norm.data.tolist() == [1, 2, 3]
    assert (query.dtype, query.shape) == (RawDType.Q8_0, (2, 64))
    assert query.data.dtype == torch.uint8
    assert query.data.flatten().tolist() == list(range(136))
    assert query.data.shape == (2, 68)
    assert query.nbytes == source.info(query.name).nbytes == 136
    source.close()
    assert norm.data.tolist() == [1, 2, 3]  # views outlive the source


def test_gguf_views_do_not_copy(tmp_path: Path) -> None:
    source = GGUFSource(GGUFFile.open(small_gguf().write(tmp_path / "a.gguf")))
    first, again = (source.get("blk.0.attn_q.weight").data for _ in range(2))
    assert first.data_ptr() == again.data_ptr()


def test_gguf_refuses_other_types_by_name(tmp_path: Path) -> None:
    image = small_gguf()
    image.tensors.append(TensorSpec("blk.0.ffn_up.weight", (256,), GGMLType.IQ2_XXS, bytes(66)))
    path = image.write(tmp_path / "a.gguf")
    source = open_source(path)
    with pytest.raises(UnsupportedModelError, match="stored as IQ2_XXS, which is not supported") as caught:
        source.get("blk.0.ffn_up.weight")
    assert (caught.value.file, caught.value.tensor) == (str(path), "blk.0.ffn_up.weight")
    with pytest.raises(CheckpointError, match="is not in this file"):
        source.get("absent")


def test_safetensors_directory_and_file(tmp_path: Path) -> None:
    save_file(CLEAN, tmp_path / "model.safetensors")
    for path in (tmp_path, tmp_path / "model.safetensors"):
        _assert_clean(SafetensorsSource.open(path))


def test_safetensors_dtypes(tmp_path: Path) -> None:
    values = {"f16": torch.randn(3, 2).half(), "bf16": torch.randn(5).bfloat16(), "f32": torch.randn(())}
    save_file({**values, "i64": torch.tensor([1])}, tmp_path / "model.safetensors")
    source = SafetensorsSource.open(tmp_path)
    for name, value in values.items():
        raw = source.get(name)
        assert raw.dtype == name
        assert torch.equal(raw.data, value)
    with pytest.raises(UnsupportedModelError, match="stored as I64") as caught:
        source.get("i64")
    assert caught.value.tensor == "i64"


def test_safetensors_data_at_an_odd_address(tmp_path: Path) -> None:
    """Nothing in the format aligns a tensor: one of odd size before it shifts all that follow."""
    header = {
        "pad": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]},
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw_safetensors(json.dumps(header).encode(), b"abc" + f32(1.5, -2)))
    assert SafetensorsSource.open(path).get("x").data.tolist() == [1.5, -2]


def test_a81_only_what_the_index_assigns_counts(tmp_path: Path) -> None:
    """A stale copy in another shard and a consolidated file beside do not overwrite good tensors."""
    _sharded(tmp_path)
    _assert_clean(SafetensorsSource.open(tmp_path))
    stale = {"a": torch.tensor([-1.0, -1.0]), "leftover": torch.tensor([9.0])}
    save_file({"b": CLEAN["b"], **stale}, tmp_path / "model-00002-of-00002.safetensors")
    save_file({"a": stale["a"], "b": torch.zeros(2, 1)}, tmp_path / "consolidated.safetensors")
    _assert_clean(SafetensorsSource.open(tmp_path))


def test_index_naming_what_is_not_there(tmp_path: Path) -> None:
    _sharded(tmp_path)
    second = tmp_path / "model-00002-of-00002.safetensors"
    save_file({"other": CLEAN["b"]}, second)
    with pytest.raises(CheckpointError, match=f"is not in {second.name}") as caught:
        SafetensorsSource.open(tmp_path)
    assert (caught.value.file, caught.value.tensor) == (str(second), "b")
    second.unlink()
    with pytest.raises(CheckpointError, match="No such file") as caught:
        SafetensorsSource.open(tmp_path)
    assert caught.value.file == str(second)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "neither model.safetensors nor"),
        ("pytorch_model.bin", "pickled PyTorch weights"),
        ("model.gguf", "name the one to load"),
    ],
)
def test_a_directory_without_safetensors(tmp_path: Path, name: str | None, message: str) -> None:
    if name:
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=message):
        open_source(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        open_source(tmp_path / "nowhere")


def test_dummy_values_depend_on_seed_name_and_shape_only() -> None:
    shapes: dict[str, tuple[int, ...]] = {"w": (8, 16), "v": (8, 16), "model.norm.weight": (64,)}
    first = DummySource(shapes, dtype=RawDType.BF16)
    again = DummySource(dict(reversed(shapes.items())), dtype=RawDType.BF16)
    assert list(first.names()) == list(shapes)
    for name, shape in shapes.items():
        raw = first.get(name)
        assert (raw.shape, raw.data.shape, raw.data.dtype) == (shape, shape, torch.bfloat16)
        assert torch.equal(raw.data, again.get(name).data)
        assert raw.nbytes == first.info(name).nbytes
    assert not torch.equal(first.get("w").data, first.get("v").data)
    assert not torch.equal(first.get("w").data, DummySource(shapes, seed=1).get("w").data.bfloat16())
    assert first.get("model.norm.weight").data.float().mean() == pytest.approx(1, abs=0.02)
