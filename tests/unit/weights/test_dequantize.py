"""Every quantised format against the `gguf` package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from tests import assets

from octavo.lib.gguf import GGUFFile
from octavo.weights import dequantize as module
from octavo.weights.dequantize import dequantize, to_float32
from octavo.weights.gguf import GGUFSource
from octavo.weights.source import RawDType, RawTensor

QUANTIZED = [dtype for dtype in RawDType if dtype.is_quantized]


def _reference(blocks: np.ndarray, dtype: RawDType) -> np.ndarray:
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[dtype.name])


def _assert_same_bits(ours: torch.Tensor, reference: np.ndarray) -> None:
    nan = np.isnan(reference)  # of a NaN only that it is one is defined
    assert ours.dtype == torch.float32
    assert tuple(ours.shape) == reference.shape
    assert np.array_equal(np.isnan(ours.numpy()), nan)
    assert np.array_equal(ours.numpy().view(np.uint32)[~nan], reference.view(np.uint32)[~nan])


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("shape", [(1, 1), (37, 3), (2, 5, 2)], ids=str)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_random_bytes(dtype: RawDType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] * dtype.block_bytes), dtype=np.uint8)
    _assert_same_bits(dequantize(torch.from_numpy(blocks), dtype), _reference(blocks, dtype))


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_pieces_join_without_a_seam(dtype: RawDType, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = np.random.default_rng(5).integers(0, 256, (7, 3 * dtype.block_bytes), dtype=np.uint8)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 2 * dtype.block_size)
    _assert_same_bits(dequantize(torch.from_numpy(blocks), dtype), _reference(blocks, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float_formats_widen(dtype: torch.dtype) -> None:
    data = torch.randn(3, 4).to(dtype)
    kind = {torch.float32: RawDType.F32, torch.float16: RawDType.F16, torch.bfloat16: RawDType.BF16}[dtype]
    assert torch.equal(to_float32(RawTensor("t", "f", (3, 4), kind, data)), data.float())


def _check_file(file: GGUFFile, limit: int) -> set[RawDType]:
    """Compare the first `limit` rows of up to four tensors of each format; returns the formats seen."""
    source = GGUFSource(file)
    seen: dict[RawDType, int] = {}
    for name in source.names():
        raw = source.get(name)
        seen[raw.dtype] = seen.get(raw.dtype, 0) + 1
        if raw.dtype.is_quantized and seen[raw.dtype] <= 4:
            blocks = raw.data[:limit].clone()
            _assert_same_bits(dequantize(blocks, raw.dtype), _reference(blocks.numpy(), raw.dtype))
    return set(seen)


def test_real_file() -> None:
    with GGUFFile.open(assets.smollm2_gguf()) as file:
        assert _check_file(file, limit=64) == {RawDType.F32, RawDType.Q4_1, RawDType.Q8_0}


@pytest.mark.slow
def test_real_k_quant_file() -> None:
    with GGUFFile.open(assets.gemma3_gguf()) as file:
        assert _check_file(file, limit=512) >= {RawDType.Q4_K, RawDType.Q6_K, RawDType.Q5_0, RawDType.Q8_0}
