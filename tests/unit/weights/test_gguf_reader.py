"""What the GGUF reader accepts, and that it refuses everything else with the file and the tensor or key named."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.unit.weights.checkpoint_files import (
    U32,
    U64,
    GGUFImage,
    TensorSpec,
    array,
    f32_tensor,
    key,
    small_gguf,
    string_key,
    strings_key,
    text,
    u32_key,
)

from octavo.lib.errors import CheckpointError
from octavo.lib.gguf import GGMLType, GGUFFile, ValueType


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    with GGUFFile.open(small_gguf().write(tmp_path / "a.gguf")) as file:
        assert dict(file.metadata) == {
            "general.architecture": "toy",
            "x.uint8": 200,
            "x.int8": -3,
            "x.uint16": 65535,
            "x.int16": -300,
            "x.uint32": 4_000_000_000,
            "x.int32": -70_000,
            "x.uint64": 2**63,
            "x.int64": -(2**40),
            "x.float32": 0.5,
            "x.float64": 0.1,
            "x.bool": True,
            "x.strings": ["", "a", "Ünï", "<|end|>"],
            "x.floats": [1.5, -2.0],
            "x.bools": [False, True],
            "x.nothing": [],
        }
        assert file.array_length("x.strings") == 4


def test_tensors_are_row_major_views(tmp_path: Path) -> None:
    path = small_gguf().write(tmp_path / "a.gguf")
    with GGUFFile.open(path) as file:
        norm, query = file.tensors.values()
        assert (norm.name, norm.shape, norm.ggml_type, norm.nbytes) == (
            "output_norm.weight",
            (3,),
            GGMLType.F32,
            12,
        )
        assert struct.unpack("<3f", norm.data()) == (1, 2, 3)
        assert (query.shape, query.ggml_type, query.file) == ((2, 64), GGMLType.Q8_0, path)
        assert query.data().tobytes() == bytes(range(136))
        assert query.data().readonly


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [1, 8, 32, 4096])
def test_versions_and_alignments(tmp_path: Path, version: int, alignment: int) -> None:
    image = small_gguf()
    image.version, image.alignment = version, alignment
    image.keys.append(u32_key("general.alignment", alignment))
    with GGUFFile.open(image.write(tmp_path / "a.gguf")) as file:
        assert file.tensors["blk.0.attn_q.weight"].data().tobytes() == bytes(range(136))


def test_views_outlive_the_file(tmp_path: Path) -> None:
    file = GGUFFile.open(small_gguf().write(tmp_path / "a.gguf"))
    view = file.tensors["output_norm.weight"].data()
    file.close()
    assert struct.unpack("<3f", view) == (1, 2, 3)


def test_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token{i}" for i in range(100)])
    writer.add_token_scores([0.25 * i for i in range(100)])
    writer.add_head_count(4)
    values = np.arange(192, dtype=np.float32).reshape(3, 64)
    writer.add_tensor("a", values)
    packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("b", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile.open(path) as file:
        assert file.get_list("tokenizer.ggml.tokens", str)[99] == "token99"
        assert file.get_list("tokenizer.ggml.scores", float)[3] == 0.75
        assert file.get_int("llama.attention.head_count") == 4
        assert file.tensors["a"].shape == (3, 64)
        assert file.tensors["b"].data().tobytes() == packed.tobytes()


def test_type_table_agrees_with_the_gguf_package() -> None:
    known = {kind.name: gguf.GGML_QUANT_SIZES[kind] for kind in gguf.GGMLQuantizationType}
    del known["Q8_1"]  # the package says 40 bytes, ggml's struct has 36
    ours = {kind.name: (kind.block_size, kind.type_size) for kind in GGMLType}
    assert known.items() <= ours.items()
    assert {kind.name: kind.value for kind in gguf.GGMLQuantizationType}.items() <= {
        kind.name: kind.value for kind in GGMLType
    }.items()


def test_reading_needs_no_torch_and_no_numpy() -> None:
    code = "import sys, octavo.lib.gguf, octavo.lib.safetensors; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def _edited(edit: Callable[[GGUFImage], object]) -> GGUFImage:
    image = small_gguf()
    edit(image)
    return image


def _set(**fields: object) -> Callable[[GGUFImage], None]:
    return lambda image: image.__dict__.update(fields)


def _key(raw: bytes) -> Callable[[GGUFImage], None]:
    return lambda image: image.keys.append(raw)


def _tensor(*tensors: TensorSpec) -> Callable[[GGUFImage], None]:
    return lambda image: image.tensors.extend(tensors)


REFUSED = {
    "magic": (_set(magic=b"GGML"), "does not begin with"),
    "version 1": (_set(version=1), "version 1"),
    "version 4": (_set(version=4), "version 4"),
    "big-endian": (_set(version=3 << 24), "big-endian"),
    "too many keys": (_set(key_count=1 << 60), "number of metadata keys"),
    "more keys than there are": (_set(key_count=18), ""),
    "too many tensors": (_set(tensor_count=1 << 60), "number of tensors"),
    "one tensor too few": (_set(tensor_count=1), ""),
    "trailing bytes": (_set(trailing=bytes(32)), "follow the last tensor"),
    "key twice": (_key(u32_key("x.uint8", 1)), "'x.uint8' occurs twice"),
    "empty key": (_key(u32_key("", 1)), "is empty"),
    "key not utf-8": (_key(key(b"\xff\xfe", ValueType.UINT8, b"1")), "not valid UTF-8"),
    "string not utf-8": (_key(key("s", ValueType.STRING, text(b"\xc3"))), "'s' is not valid UTF-8"),
    "unknown value type": (_key(text("k") + U32.pack(13) + bytes(8)), "unknown type 13"),
    "string beyond the end": (_key(key("k", ValueType.STRING, U64.pack(1 << 20))), "ends at byte"),
    "endless string": (_key(key("k", ValueType.STRING, U64.pack(1 << 62))), "the limit is"),
    "endless array": (
        _key(key("k", ValueType.ARRAY, U32.pack(ValueType.UINT8) + U64.pack(1 << 62))),
        "'k' is 4611686018427387904",
    ),
    "endless string in an array": (
        _key(key("k", ValueType.ARRAY, array(ValueType.STRING, [U64.pack(1 << 63)]))),
        "element 0 of metadata key 'k'",
    ),
    "nested array": (
        _key(key("k", ValueType.ARRAY, array(ValueType.ARRAY, [array(ValueType.UINT8, [])]))),
        "array of arrays",
    ),
    "bool of 2": (_key(key("k", ValueType.BOOL, b"\x02")), "bool of value 2"),
    "array bool of 2": (_key(key("k", ValueType.ARRAY, array(ValueType.BOOL, [b"\x02"]))), "neither 0 nor 1"),
    "alignment 0": (_key(u32_key("general.alignment", 0)), "power of two"),
    "alignment 24": (_key(u32_key("general.alignment", 24)), "power of two"),
    "alignment 2**31": (_key(u32_key("general.alignment", 1 << 31)), "power of two"),
    "alignment a string": (_key(string_key("general.alignment", "32")), "power of two"),
}

REFUSED_TENSORS = {
    "name twice": (f32_tensor("output_norm.weight", (1,), (1,)), "occurs twice"),
    "unknown type": (TensorSpec("t", (32,), 99, bytes(32)), "unknown type 99"),
    "removed type": (TensorSpec("t", (32,), 4, bytes(32)), "unknown type 4"),
    "five dimensions": (TensorSpec("t", (1, 1, 1, 1, 1), 0, bytes(4)), "5 dimensions"),
    "dimension 0": (TensorSpec("t", (4, 0), 0, b""), "size 0"),
    "partial block": (TensorSpec("t", (33, 2), GGMLType.Q4_0, bytes(36)), "multiple of Q4_0's block"),
    "64-bit product": (TensorSpec("t", (1 << 32, 1 << 32), 0, bytes(4)), "the whole file has"),
    "too large": (TensorSpec("t", (1 << 20,), 0, bytes(4)), "the whole file has"),
    "cut off": (TensorSpec("t", (20,), 0, bytes(4)), "is it truncated?"),
    "misaligned": (TensorSpec("t", (1,), 0, bytes(4), offset=196), "not a multiple of 32"),
    "overlap": (TensorSpec("t", (1,), 0, bytes(4), offset=0), "overlaps"),
    "gap": (TensorSpec("t", (1,), 0, bytes(4), offset=320), "gap"),
    "beyond the end": (TensorSpec("t", (1,), 0, bytes(4), offset=1 << 63), "gap"),
}


@pytest.mark.parametrize(("edit", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_with_the_file_named(
    tmp_path: Path, edit: Callable[[GGUFImage], object], message: str
) -> None:
    path = _edited(edit).write(tmp_path / "bad.gguf")
    with pytest.raises(CheckpointError) as caught:
        GGUFFile.open(path)
    assert caught.value.file == str(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(("tensor", "message"), REFUSED_TENSORS.values(), ids=REFUSED_TENSORS.keys())
def test_refuses_with_the_tensor_named(tmp_path: Path, tensor: TensorSpec, message: str) -> None:
    path = _edited(_tensor(tensor)).write(tmp_path / "bad.gguf")
    with pytest.raises(CheckpointError) as caught:
        GGUFFile.open(path)
    assert caught.value.file == str(path)
    if "overlap" not in message:  # of two that overlap either may be named
        assert caught.value.tensor == tensor.name
    assert message in str(caught.value)


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    for name, message in {"empty.gguf": "is empty", "missing.gguf": "No such file", ".": "directory"}.items():
        with pytest.raises(CheckpointError, match=message):
            GGUFFile.open(tmp_path / name)


def test_a_string_is_decoded_late_but_never_wrongly(tmp_path: Path) -> None:
    image = GGUFImage([strings_key("tokenizer.ggml.tokens", ["good", b"\xff"])])
    with GGUFFile.open(image.write(tmp_path / "a.gguf")) as file:
        assert file.array_length("tokenizer.ggml.tokens") == 2
        with pytest.raises(
            CheckpointError, match=r"element 1 of metadata key 'tokenizer.ggml.tokens'"
        ) as caught:
            file.get_list("tokenizer.ggml.tokens", str)
        assert caught.value.file == str(file.path)


def test_typed_reads_name_the_key(tmp_path: Path) -> None:
    with GGUFFile.open(small_gguf().write(tmp_path / "a.gguf")) as file:
        assert file.get_int("x.uint32") == 4_000_000_000
        assert file.get_int("absent", 7) == 7
        assert file.get_bool("x.bool") is True
        assert file.get_str("general.architecture") == "toy"
        assert file.get_float("x.float64") == 0.1
        assert file.get_list("x.strings", str)[1] == "a"
        assert file.get_list("absent", int, []) == []
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: file.get_int("absent"), "'absent' is missing"),
            (lambda: file.get_int("x.bool"), "'x.bool' must be an integer"),
            (lambda: file.get_int("x.int8"), "'x.int8' is -3, but must be between 0"),
            (lambda: file.get_int("x.uint8", maximum=100), "'x.uint8' is 200"),
            (lambda: file.get_str("x.uint8"), "'x.uint8' must be a string"),
            (lambda: file.get_float("x.uint8"), "'x.uint8' must be a float"),
            (lambda: file.get_bool("x.uint8"), "'x.uint8' must be a bool"),
            (lambda: file.get_list("x.uint8", int), "'x.uint8' must be an array"),
            (lambda: file.get_list("x.strings", int), "'x.strings' must be an array of int"),
            (lambda: file.array_length("x.uint8"), "'x.uint8' must be an array"),
        ]
        for read, message in wrong:
            with pytest.raises(CheckpointError, match=message):
                read()


def _write_split(folder: Path, count: int = 3, *, tensors: int | None = None) -> list[Path]:
    """A checkpoint in `count` files of one tensor each; only the first has the model's metadata."""
    paths = []
    for number in range(count):
        keys = [
            key("split.no", ValueType.UINT16, struct.pack("<H", number)),
            key("split.count", ValueType.UINT16, struct.pack("<H", count)),
            key("split.tensors.count", ValueType.INT32, struct.pack("<i", tensors or count)),
        ]
        keys += [string_key("general.architecture", "toy")] if number == 0 else []
        image = GGUFImage(keys, [f32_tensor(f"t{number}", (2,), (number, 1))])
        paths.append(image.write(folder / f"m-{number + 1:05d}-of-{count:05d}.gguf"))
    return paths


def test_split_files_read_as_one(tmp_path: Path) -> None:
    paths = _write_split(tmp_path)
    with GGUFFile.open(paths[0]) as file:
        assert file.get_str("general.architecture") == "toy"
        assert list(file.tensors) == ["t0", "t1", "t2"]
        assert [t.file for t in file.tensors.values()] == paths
        assert struct.unpack("<2f", file.tensors["t2"].data()) == (2, 1)


def test_split_as_the_gguf_package_writes_it(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for number in range(5):
        writer.add_tensor(f"t{number}", np.full((4,), number, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile.open(tmp_path / "m-00001-of-00003.gguf") as file:
        assert [struct.unpack("<4f", t.data())[0] for t in file.tensors.values()] == [0, 1, 2, 3, 4]


def test_split_faults_name_the_part(tmp_path: Path) -> None:
    paths = _write_split(tmp_path)
    with pytest.raises(CheckpointError, match=r"part 2 of 3; open the first, m-00001-of-00003\.gguf"):
        GGUFFile.open(paths[1])
    original = paths[1].read_bytes()
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(CheckpointError, match="does not say that it is part 2 of 3") as caught:
        GGUFFile.open(paths[0])
    assert caught.value.file == str(paths[1])
    paths[1].write_bytes(original.replace(b"t1", b"t0"))
    with pytest.raises(CheckpointError, match=f"occurs in {paths[0].name} too") as caught:
        GGUFFile.open(paths[0])
    assert (caught.value.file, caught.value.tensor) == (str(paths[1]), "t0")
    paths[1].unlink()
    with pytest.raises(CheckpointError, match="No such file") as caught:
        GGUFFile.open(paths[0])
    assert caught.value.file == str(paths[1])
    with pytest.raises(CheckpointError, match=r"must end in -00001-of-00003\.gguf"):
        GGUFFile.open(paths[0].rename(tmp_path / "renamed.gguf"))


def test_split_with_a_wrong_number_of_tensors(tmp_path: Path) -> None:
    paths = _write_split(tmp_path, tensors=4)
    with pytest.raises(CheckpointError, match="announces 4 tensors, but its 3 files hold 3"):
        GGUFFile.open(paths[0])
