"""A GGUF file as a source of weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.lib.gguf import GGMLType, GGUFFile, GGUFTensor
from octavo.weights.source import TORCH_DTYPES, RawDType, RawTensor, TensorInfo, view_bytes

RAW_DTYPES: dict[GGMLType, RawDType] = {
    GGMLType[dtype.name]: dtype for dtype in RawDType if dtype.is_float or dtype.is_quantized
}


class GGUFSource:
    """The tensors of a GGUF checkpoint under their GGUF names (`blk.0.attn_q.weight`)."""

    def __init__(self, gguf: GGUFFile) -> None:
        self._gguf = gguf

    @property
    def path(self) -> str:
        return str(self._gguf.path)

    def names(self) -> Iterable[str]:
        return self._gguf.tensors.keys()

    def file(self, name: str) -> str:
        return str(self._tensor(name).file)

    def info(self, name: str) -> TensorInfo:
        """See `WeightSource.info`."""
        tensor = self._tensor(name)
        dtype = RAW_DTYPES.get(tensor.ggml_type)
        if dtype is None:
            known = ", ".join(RAW_DTYPES[kind].name for kind in sorted(RAW_DTYPES))
            message = (
                f"is stored as {tensor.ggml_type.name}, which is not supported; the known types are {known}"
            )
            raise UnsupportedModelError(message, file=str(tensor.file), tensor=name)
        return TensorInfo(tensor.shape, dtype)

    def get(self, name: str) -> RawTensor:
        """See `WeightSource.get`; quantised tensors stay in their blocks."""
        tensor, info = self._tensor(name), self.info(name)
        if info.dtype in TORCH_DTYPES:
            data = view_bytes(tensor.data(), TORCH_DTYPES[info.dtype], info.shape)
        else:
            row_bytes = info.shape[-1] // info.dtype.block_size * info.dtype.block_bytes
            data = view_bytes(tensor.data(), torch.uint8, (*info.shape[:-1], row_bytes))
        return RawTensor(name, str(tensor.file), info.shape, info.dtype, data)

    def forget(self, name: str) -> None:
        self._tensor(name).forget()

    def close(self) -> None:
        self._gguf.close()

    def _tensor(self, name: str) -> GGUFTensor:
        try:
            return self._gguf.tensors[name]
        except KeyError:
            raise CheckpointError("is not in this file", file=self.path, tensor=name) from None
