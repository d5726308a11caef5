"""A Hugging Face checkpoint of one or more safetensors files as a source of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.lib.safetensors import SafetensorsFile, SafetensorsTensor, read_index
from octavo.weights.source import TORCH_DTYPES, RawDType, RawTensor, TensorInfo, view_bytes

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOAT_DTYPES = {"F32": RawDType.F32, "F16": RawDType.F16, "BF16": RawDType.BF16}
# Of checkpoints that their configuration calls quantised.
QUANTISED_DTYPES = {
    **FLOAT_DTYPES,
    "I32": RawDType.I32,
    "I8": RawDType.I8,
    "F8_E4M3": RawDType.F8_E4M3,
}


class SafetensorsSource:
    """The tensors of a safetensors checkpoint.

    Of a sharded checkpoint only the tensors that the index assigns to a file are taken from that file: a stale copy
    in another shard does not count, nor does a file that the index does not name.
    """

    def __init__(
        self,
        path: Path,
        files: list[SafetensorsFile],
        tensors: Mapping[str, SafetensorsTensor],
        dtypes: Mapping[str, RawDType],
    ) -> None:
        self._path = path
        self._files = files
        self._tensors = tensors
        self._dtypes = dtypes

    @classmethod
    def open(cls, path: str | Path, dtypes: Mapping[str, RawDType] = FLOAT_DTYPES) -> SafetensorsSource:
        """Open a `.safetensors` file, or a directory with `model.safetensors` or an index and its shards.

        Args:
            path: The file or directory.
            dtypes: What tensors may be stored as, by the format's names.

        Raises:
            CheckpointError: A file or a tensor of the index is missing, or a file is damaged.
        """
        path = Path(path)
        if path.is_file():
            return cls._open_single(path, dtypes)
        if (path / SINGLE).is_file():
            return cls._open_single(path / SINGLE, dtypes)
        if (path / INDEX).is_file():
            return cls._open_sharded(path / INDEX, dtypes)
        raise CheckpointError(_nothing_here(path), file=str(path))

    @classmethod
    def _open_single(cls, path: Path, dtypes: Mapping[str, RawDType]) -> SafetensorsSource:
        file = SafetensorsFile.open(path)
        return cls(path, [file], file.tensors, dtypes)

    @classmethod
    def _open_sharded(cls, index: Path, dtypes: Mapping[str, RawDType]) -> SafetensorsSource:
        weight_map = read_index(index)
        files: dict[str, SafetensorsFile] = {}
        try:
            for shard in sorted(set(weight_map.values())):
                files[shard] = SafetensorsFile.open(index.with_name(shard))
            return cls(index, list(files.values()), _assigned(weight_map, files, index), dtypes)
        except CheckpointError:
            for file in files.values():
                file.close()
            raise

    @property
    def path(self) -> str:
        return str(self._path)

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def file(self, name: str) -> str:
        return str(self._tensor(name).file)

    def info(self, name: str) -> TensorInfo:
        """See `WeightSource.info`."""
        tensor = self._tensor(name)
        dtype = self._dtypes.get(tensor.dtype)
        if dtype is None:
            known = ", ".join(self._dtypes)
            message = f"is stored as {tensor.dtype}, which is not supported; the known types are {known}"
            raise UnsupportedModelError(message, file=str(tensor.file), tensor=name)
        return TensorInfo(tensor.shape, dtype)

    def get(self, name: str) -> RawTensor:
        """See `WeightSource.get`."""
        tensor, info = self._tensor(name), self.info(name)
        data = view_bytes(tensor.data(), TORCH_DTYPES[info.dtype], info.shape)
        return RawTensor(name, str(tensor.file), info.shape, info.dtype, data)

    def forget(self, name: str) -> None:
        self._tensor(name).forget()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _tensor(self, name: str) -> SafetensorsTensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError("is not in this checkpoint", file=self.path, tensor=name) from None


def _assigned(
    weight_map: dict[str, str], files: dict[str, SafetensorsFile], index: Path
) -> dict[str, SafetensorsTensor]:
    """The tensors of the index, file by file in the order of their data."""
    for name, shard in weight_map.items():
        if name not in files[shard].tensors:
            message = f"is not in {shard}, where {index.name} says it is"
            raise CheckpointError(message, file=str(index.with_name(shard)), tensor=name)
    return {
        name: tensor
        for shard, file in files.items()
        for name, tensor in file.tensors.items()
        if weight_map.get(name) == shard
    }


def _nothing_here(path: Path) -> str:
    if not path.exists():
        return "does not exist"
    if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
        return "holds only pickled PyTorch weights, which are unsafe to load: convert them to safetensors"
    if any(path.glob("*.gguf")):
        return "holds GGUF files: name the one to load"
    return f"holds neither {SINGLE} nor {INDEX}"
