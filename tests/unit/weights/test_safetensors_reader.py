"""What the safetensors reader accepts and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.unit.weights.checkpoint_files import U64, f32, raw_safetensors, small_safetensors

from octavo.lib.errors import CheckpointError
from octavo.lib.safetensors import DTYPE_BITS, SafetensorsFile, read_index


def test_reads_an_honest_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(small_safetensors())
    file = SafetensorsFile.open(path)
    assert dict(file.metadata) == {"format": "pt"}
    embed = file.tensors["model.embed_tokens.weight"]
    assert (embed.dtype, embed.shape, embed.nbytes) == ("F32", (2, 3), 24)
    assert embed.data().tobytes() == f32(1, 2, 3, 4, 5, 6)
    assert embed.data().readonly
    file.close()


def test_agrees_with_the_safetensors_package(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).bfloat16(),
        "scalar": torch.tensor(3),
        "none": torch.empty(0, 4),
        "c": torch.randn(2, 2, 2).to(torch.float8_e4m3fn),
    }
    save_file(tensors, tmp_path / "a.safetensors")
    file = SafetensorsFile.open(tmp_path / "a.safetensors")
    assert {name: t.shape for name, t in file.tensors.items()} == {
        n: tuple(t.shape) for n, t in tensors.items()
    }
    for name, tensor in tensors.items():
        assert file.tensors[name].data().tobytes() == bytes(
            tensor.contiguous().view(-1).view(torch.uint8).tolist()
        )
    assert {t.dtype for t in file.tensors.values()} <= DTYPE_BITS.keys()


def _entry(**changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes


REFUSED_TENSORS = {
    "unknown dtype": (_entry(dtype="F31"), "unknown dtype 'F31'"),
    "dtype no string": (_entry(dtype=["F32"]), "unknown dtype"),
    "negative size": (_entry(shape=[-2]), "impossible shape"),
    "bool size": (_entry(shape=[True, 2]), "impossible shape"),
    "float size": (_entry(shape=[2.0]), "impossible shape"),
    "too many dimensions": (_entry(shape=[1] * 17 + [2]), "impossible shape"),
    "huge size": (_entry(shape=[2**64]), "impossible shape"),
    "64-bit product": (_entry(shape=[2**62, 4]), "but its data has 8"),
    "offsets reversed": (_entry(data_offsets=[8, 0]), "impossible data_offsets"),
    "three offsets": (_entry(data_offsets=[0, 4, 8]), "impossible data_offsets"),
    "no offsets": ({"dtype": "F32", "shape": [2]}, "exactly the keys"),
    "extra key": (_entry(note="x"), "exactly the keys"),
    "no object": ([1, 2], "exactly the keys"),
    "size mismatch": (_entry(shape=[3]), "12 bytes, but its data has 8"),
    "gap": (_entry(data_offsets=[4, 12]), "gap before it"),
    "beyond the end": (_entry(shape=[4], data_offsets=[0, 16]), "is it truncated?"),
}


@pytest.mark.parametrize(("entry", "message"), REFUSED_TENSORS.values(), ids=REFUSED_TENSORS.keys())
def test_refuses_with_the_tensor_named(tmp_path: Path, entry: object, message: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw_safetensors(json.dumps({"t": entry}).encode(), bytes(12)))
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile.open(path)
    assert (caught.value.file, caught.value.tensor) == (str(path), "t")
    assert message in str(caught.value)


def test_refuses_overlap(tmp_path: Path) -> None:
    header = {"a": _entry(), "b": _entry(data_offsets=[4, 12])}
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw_safetensors(json.dumps(header).encode(), bytes(12)))
    with pytest.raises(CheckpointError, match="overlaps") as caught:
        SafetensorsFile.open(path)
    assert caught.value.tensor == "b"


GOOD_ENTRY = json.dumps(_entry()).encode()
REFUSED_FILES = {
    "too short": (b"1234567", "too short"),
    "endless header": (U64.pack(1 << 63) + b"{}", "announces a header"),
    "header beyond the end": (U64.pack(100) + b"{}", "announces a header"),
    "not json": (raw_safetensors(b"{nope}", b""), "not valid JSON"),
    "not utf-8": (raw_safetensors(b'{"\xff": 1}', b""), "not valid JSON"),
    "an array": (raw_safetensors(b"[]", b""), "not a JSON object"),
    "no header": (U64.pack(0), "not a JSON object"),
    "tensor twice": (
        raw_safetensors(b'{"t":' + GOOD_ENTRY + b',"t":' + GOOD_ENTRY + b"}", bytes(8)),
        "the key 't' twice",
    ),
    "absurd nesting": (raw_safetensors(b'{"t":' + b"[" * 200_000, b""), "not valid JSON"),
    "absurd number": (raw_safetensors(b'{"t":' + b"9" * 10_000 + b"}", b""), "not valid JSON"),
    "metadata no strings": (raw_safetensors(b'{"__metadata__": {"a": 1}}', b""), "__metadata__"),
    "metadata no object": (raw_safetensors(b'{"__metadata__": 3}', b""), "__metadata__"),
    "trailing bytes": (raw_safetensors(b'{"t":' + GOOD_ENTRY + b"}", bytes(12)), "4 bytes follow"),
}


@pytest.mark.parametrize(("raw", "message"), REFUSED_FILES.values(), ids=REFUSED_FILES.keys())
def test_refuses_with_the_file_named(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw)
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile.open(path)
    assert caught.value.file == str(path)
    assert message in str(caught.value)


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.safetensors"):
        with pytest.raises(CheckpointError, match="cannot be read"):
            SafetensorsFile.open(path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "not a JSON object"),
        ("{}", "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"a": 1}}', "tensor 'a': is assigned to 1"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "tensor 'a'"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "tensor 'a'"),
        ('{"weight_map": {"a": "x.bin"}}', "tensor 'a'"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "the key 'a' twice"),
    ],
)
def test_refuses_a_bad_index(tmp_path: Path, index: str, message: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(index)
    with pytest.raises(CheckpointError) as caught:
        read_index(path)
    assert caught.value.file == str(path)
    assert message in str(caught.value)
