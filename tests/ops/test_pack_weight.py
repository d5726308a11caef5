"""Packing: nothing is lost, and what does not fit is refused with a clear word."""

from __future__ import annotations

import gguf
import pytest
import torch
from tests.ops.weights import Weight, random_blocks, random_weight, smallest_cols

from octavo import ops
from octavo.lib.errors import NotSupportedError
from octavo.ops.packing import QUANTISED_BLOCKS


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 37])
@pytest.mark.parametrize("fmt", ops.FORMATS)
def test_dequantize_gives_exactly_the_stored_values(fmt: str, rows: int) -> None:
    for blocks in (1, 2, 3, 5):
        weight = random_weight(fmt, rows, smallest_cols(fmt) * blocks, seed=rows)
        assert torch.equal(weight.packed.dequantize(), weight.values)


@pytest.mark.parametrize("fmt", ops.FORMATS)
def test_embedding_reads_rows_of_the_packed_panels(fmt: str) -> None:
    weight = random_weight(fmt, 53, smallest_cols(fmt) * 3)
    ids = torch.tensor([52, 0, 16, 15, 31, 16])
    assert torch.equal(ops.embedding(ids, weight.packed), weight.values[ids])
    assert ops.embedding(ids[:0], weight.packed).shape == (0, weight.packed.cols)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_every_exponent_of_mxfp4() -> None:
    """Subnormal scales and 255, which is no NaN, in the rows read back; in the kernels up to where float32 ends."""
    blocks = torch.from_numpy(random_blocks("mxfp4", 256, 32))
    blocks[:, 0] = torch.arange(256, dtype=torch.uint8)
    kind = gguf.GGMLQuantizationType.MXFP4
    values = torch.from_numpy(gguf.quants.dequantize(blocks.numpy(), kind).copy())
    weight = ops.pack_weight(blocks, "mxfp4", 256, 32)
    assert torch.equal(weight.dequantize(), values)
    one = torch.zeros(1, 32)
    one[0, 5] = 0.5
    # Tiles have float16's range, 2^40, within a matrix (csrc/kernels/linear_quantised_tiles.h).
    for isa in (isa for isa in ops.available_isas() if not isa.startswith("amx")):
        ops.set_isa(isa)
        got = ops.linear(one, [weight])[0]
        torch.testing.assert_close(got[:250], values[:250, 5] * 0.5, rtol=2**-10, atol=2**-149)


def test_threads_do_not_change_what_is_packed() -> None:
    before = ops.num_threads()
    try:
        for threads in (1, 2, 4):
            ops.set_num_threads(threads)
            weight = random_weight("q6_k", 400, 512)
            assert torch.equal(weight.packed.dequantize(), weight.values)
    finally:
        ops.set_num_threads(before)


def test_quantised_weights_stay_quantised_in_memory() -> None:
    bits = {fmt: random_weight(fmt, 64, 512).packed.nbytes * 8 / (64 * 512) for fmt in QUANTISED_BLOCKS}
    stored = {fmt: random_blocks(fmt, 64, 512).nbytes * 8 / (64 * 512) for fmt in QUANTISED_BLOCKS}
    assert all(bits[fmt] <= stored[fmt] * 1.04 for fmt in QUANTISED_BLOCKS), bits


def test_bf16_and_f16_bits_survive() -> None:
    for dtype, fmt in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
        finite = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
        finite = finite[finite.float().isfinite()][: 256 * 200].reshape(200, 256)
        assert torch.equal(ops.pack_weight(finite, fmt, 200, 256).dequantize(), finite.float())


def test_what_does_not_fit_is_refused() -> None:
    blocks = torch.from_numpy(random_blocks("q8_0", 16, 64))
    with pytest.raises(NotSupportedError, match=r"iq1_s.*known are"):
        ops.pack_weight(blocks, "iq1_s", 16, 64)
    with pytest.raises(ValueError, match="has 544 bytes, got 1088"):
        ops.pack_weight(blocks, "q8_0", 16, 32)
    with pytest.raises(ValueError, match="multiple of 32"):
        ops.pack_weight(blocks, "q8_0", 16, 40)
    with pytest.raises(ValueError, match=r"must be torch\.uint8"):
        ops.pack_weight(blocks.float(), "q8_0", 16, 64)
    with pytest.raises(ValueError, match=r"must be \[16, 32\]"):
        ops.pack_weight(torch.zeros(32, 16), "f32", 16, 32)
    with pytest.raises(ValueError, match=r"ids\[1\] is 16"):
        ops.embedding(torch.tensor([0, 16]), ops.pack_weight(blocks, "q8_0", 16, 64))
    with pytest.raises(ValueError, match=r"ids\[0\] is -1"):
        ops.embedding(torch.tensor([-1]), ops.pack_weight(blocks, "q8_0", 16, 64))


def test_matrices_that_share_memory_outlive_each_other() -> None:
    """Small ones lie in slabs together; values stay whatever is let go and made anew beside them."""
    kept: list[Weight] = []
    for seed in range(60):
        rows = 16 * (1 + seed * 37 % 50)
        weights = [random_weight("f32", rows, 1024, seed + part) for part in (0, 100)]
        kept.append(weights[0])
    assert sum(weight.packed.nbytes for weight in kept) > 40 << 20
    for weight in kept:
        assert torch.equal(weight.packed.dequantize(), weight.values)
