"""What a checkpoint gives: named raw tensors, quantised ones still in their blocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Protocol

import torch

from octavo.lib.gguf import GGMLType


class RawDType(StrEnum):
    """Storage formats that weights may come in. The quantised ones are GGUF's blocks.

    Integers and 8-bit floats mean nothing without scales, which are tensors of their own: only checkpoints whose
    configuration says how they are quantised may hold them.
    """

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q8_0 = "q8_0"
    Q2_K = "q2_k"
    Q3_K = "q3_k"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"
    IQ4_NL = "iq4_nl"
    MXFP4 = "mxfp4"
    I32 = "i32"
    I8 = "i8"
    F8_E4M3 = "f8_e4m3"

    @property
    def is_quantized(self) -> bool:
        """Whether it comes in blocks."""
        return self not in TORCH_DTYPES

    @property
    def is_float(self) -> bool:
        """Whether its elements are values as they are."""
        return self in (RawDType.F32, RawDType.F16, RawDType.BF16)

    @property
    def block_size(self) -> int:
        """Number of elements in one block (1 for others)."""
        return GGMLType[self.name].block_size if self.is_quantized else 1

    @property
    def block_bytes(self) -> int:
        """Number of bytes in one block."""
        return GGMLType[self.name].type_size if self.is_quantized else TORCH_DTYPES[self].itemsize


TORCH_DTYPES: dict[RawDType, torch.dtype] = {
    RawDType.F32: torch.float32,
    RawDType.F16: torch.float16,
    RawDType.BF16: torch.bfloat16,
    RawDType.I32: torch.int32,
    RawDType.I8: torch.int8,
    RawDType.F8_E4M3: torch.float8_e4m3fn,
}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as its file has it.

    Attributes:
        name: Its name in the checkpoint.
        file: The file it comes from, for messages.
        shape: Logical shape, outermost dimension first.
        dtype: Storage format.
        data: For what is not in blocks the typed tensor of `shape`; for quantised formats uint8 of shape
            [*shape[:-1], bytes of a row]. Usually a view of the mapped file: never write to it.
    """

    name: str
    file: str
    shape: tuple[int, ...]
    dtype: RawDType
    data: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.data.numel() * self.data.element_size()


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor without touching its data."""

    shape: tuple[int, ...]
    dtype: RawDType

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.dtype.block_size * self.dtype.block_bytes


class WeightSource(Protocol):
    """A checkpoint, whatever its format."""

    @property
    def path(self) -> str:
        """The checkpoint as a whole, for messages about what it lacks."""
        ...

    def names(self) -> Iterable[str]:
        """Every tensor, in an order that reads the files forward."""
        ...

    def file(self, name: str) -> str:
        """The file that holds `name`."""
        ...

    def info(self, name: str) -> TensorInfo:
        """Shape and format.

        Raises:
            UnsupportedModelError: It is stored in a format that no kernel or dequantiser knows.
        """
        ...

    def get(self, name: str) -> RawTensor:
        """The tensor. Of a file, nothing is read until the data is used. Raises as `info` does."""
        ...

    def forget(self, name: str) -> None:
        """The tensor has been used: what was read of it need not stay in memory. Tensors handed out stay valid."""
        ...

    def close(self) -> None:
        """Let go of the files. Tensors handed out stay valid."""
        ...


def view_bytes(buffer: memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over the bytes of `buffer`, without a copy where the address is aligned for `dtype`."""
    if len(buffer) == 0:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings():
        # torch warns once that the map is read-only; RawTensor's contract says so.
        warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)
        raw = torch.frombuffer(buffer, dtype=torch.uint8)
    if raw.data_ptr() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype).view(shape)
