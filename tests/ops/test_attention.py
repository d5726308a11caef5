"""Paged attention: against its twin in float64, and bit for bit whatever the batch, chunks, pages, threads and ISA."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.ops.paged_batch import Heads, PagedBatch, Tokens, tokens_of

from octavo import ops

SMOLLM2 = Heads(9, 3, 64)
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
]


def twin(
    batch: PagedBatch, q: torch.Tensor, counts: list[int], lengths: list[int], **options: Any
) -> torch.Tensor:
    with ops.reference_mode():
        return batch.attend(q.double(), counts, lengths, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "heads", [SMOLLM2, Heads(4, 1, 256), Heads(4, 4, 16), Heads(14, 2, 64), Heads(5, 5, 24), Heads(3, 1, 80)]
)
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (37, 0.0), (300, 5.0)])
def test_agrees_with_the_twin_in_float64(
    heads: Heads, dtype: torch.dtype, window: int, softcap: float
) -> None:
    lengths, counts = [1, 17, 257, 600], [1, 17, 1, 40]
    batch = PagedBatch.of([tokens_of(s, n, heads) for s, n in enumerate(lengths)], dtype=dtype)
    batch.prefill(600)
    q = torch.cat([s.q[n - c :] for s, n, c in zip(batch.sequences, lengths, counts, strict=True)])
    out = batch.attend(q, counts, lengths, window=window, softcap=softcap)
    expected = twin(batch, q, counts, lengths, window=window, softcap=softcap)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=3e-6)


def test_the_twin_is_scaled_dot_product_attention() -> None:
    tokens = tokens_of(3, 45, SMOLLM2)
    batch = PagedBatch.of([tokens])
    batch.prefill(45)
    out = twin(batch, tokens.q, [45], [45])
    q, k, v = (x.double().transpose(0, 1) for x in (tokens.q, tokens.k, tokens.v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(out, expected.transpose(0, 1).reshape(45, -1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (53, 3.0)])
def test_every_isa_gives_the_same_bits(dtype: torch.dtype, window: int, softcap: float) -> None:
    heads = Heads(6, 2, 40)
    outs = []
    for isa in ops.available_isas():
        ops.set_isa(isa)
        batch = PagedBatch.of([tokens_of(s, n, heads) for s, n in enumerate([5, 300, 64])], dtype=dtype)
        outs.append(torch.cat(batch.prefill(50, window=window, softcap=softcap)))
    assert all(torch.equal(outs[0], out) for out in outs[1:])


LENGTHS = [97, 1, 270, 33, 130, 16, 47]


def alone(dtype: torch.dtype, window: int) -> list[torch.Tensor]:
    """Every sequence by itself, one token a step."""
    ops.set_num_threads(1)
    return [
        PagedBatch.of([tokens_of(s, n, SMOLLM2)], dtype=dtype).prefill(1, window=window)[0]
        for s, n in enumerate(LENGTHS)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [0, 40])
def test_bits_do_not_depend_on_batch_chunk_pages_or_threads(dtype: torch.dtype, window: int) -> None:
    expected = alone(dtype, window)
    sequences = [tokens_of(s, n, SMOLLM2) for s, n in enumerate(LENGTHS)]
    for size, chunk, block_size, threads in [
        (1, 16, 16, 2),
        (1, 33, 32, 4),
        (1, 512, 64, 1),
        (2, 1, 16, 2),
        (2, 33, 128, 1),
        (7, 16, 64, 2),
        (7, 512, 32, 4),
        (32, 33, 16, 2),
    ]:
        ops.set_num_threads(threads)
        chosen = [(i * 3) % len(LENGTHS) for i in range(size)]
        batch = PagedBatch.of(
            [sequences[i] for i in chosen], block_size=block_size, dtype=dtype, shuffle=chunk
        )
        for i, out in zip(chosen, batch.prefill(chunk, window=window), strict=True):
            assert torch.equal(out, expected[i]), (size, chunk, block_size, threads, i)


def test_every_context_from_1_to_600() -> None:
    tokens = tokens_of(11, 600, Heads(3, 1, 32))
    decoded = PagedBatch.of([tokens], block_size=32).prefill(1)[0]
    batch = PagedBatch.of([tokens], block_size=16, shuffle=5)
    assert torch.equal(batch.prefill(600)[0], decoded)
    torch.testing.assert_close(decoded.double(), twin(batch, tokens.q, [600], [600]), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("window", [0, 1000])
def test_a_long_context_shared_out_over_threads(window: int) -> None:
    length = 5003
    tokens = tokens_of(2, length, Heads(4, 2, 32))
    batch = PagedBatch.of([tokens], block_size=128, dtype=torch.bfloat16)
    batch.step([0], [length], window=window)
    q = tokens.q[-1:]
    outs = []
    for threads in (1, 2, 4, 7):
        ops.set_num_threads(threads)
        outs.append(batch.attend(q, [1], [length], window=window))
    assert all(torch.equal(outs[0], out) for out in outs[1:])
    expected = twin(batch, q, [1], [length], window=window)
    torch.testing.assert_close(outs[0].double(), expected, rtol=1e-5, atol=3e-6)


def test_a_window_does_not_read_pages_before_it() -> None:
    tokens = tokens_of(4, 200, SMOLLM2)
    batch = PagedBatch.of([tokens])
    expected = batch.prefill(200, window=40)[0][-1:]
    batch.block_table[0, : (199 - 39) // 16] = 0  # given back: they name the null page, which holds NaN
    assert torch.equal(batch.attend(tokens.q[-1:], [1], [200], window=40), expected)


def test_large_scores_do_not_overflow() -> None:
    tokens = tokens_of(5, 70, SMOLLM2)
    batch = PagedBatch.of([tokens])
    batch.prefill(70)
    out = batch.attend(tokens.q[-1:] * 1e4, [1], [70])
    expected = twin(batch, tokens.q[-1:] * 1e4, [1], [70])
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2)
    assert out.isfinite().all()


def test_sequences_without_rows_and_no_rows_at_all() -> None:
    sequences = [tokens_of(s, 20, SMOLLM2) for s in range(3)]
    batch = PagedBatch.of(sequences)
    batch.prefill(20)
    middle = batch.attend(sequences[1].q[-2:], [0, 2, 0], [20, 20, 20])
    assert torch.equal(middle, PagedBatch.of([sequences[1]]).prefill(20)[0][-2:])
    assert batch.attend(torch.empty(0, 9, 64), [0, 0, 0], [20, 20, 20]).shape == (0, 9 * 64)


def test_strided_rows_of_a_fused_qkv() -> None:
    tokens = tokens_of(6, 30, SMOLLM2)
    fused = torch.cat([tokens.q.flatten(1), tokens.k.flatten(1), tokens.v.flatten(1)], dim=1)
    q, k, v = fused.split([9 * 64, 3 * 64, 3 * 64], dim=1)
    batch = PagedBatch.of([tokens])
    slots = batch.slots(0, 0, 30)
    ops.write_kv(k.view(30, 3, 64), v.view(30, 3, 64), batch.k_cache, batch.v_cache, slots)
    out = batch.attend(q.view(30, 9, 64), [30], [30])
    assert torch.equal(out, PagedBatch.of([tokens]).prefill(30)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_write_kv_rounds_as_torch_and_skips(dtype: torch.dtype) -> None:
    specials = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        65520.0,
        65519.0,
        1e-8,
        6e-8,
        3e-41,
        3.4e38,
        -1 - 2**-9,
    ]
    k = torch.cat([torch.tensor(specials), torch.randn(2 * 2 * 24 - len(specials))]).view(2, 2, 24)
    v = torch.randn(2, 2, 24) * 100
    shapes = ops.kv_cache_shapes(3, 2, 24, 16, dtype)
    native = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    plain = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    for isa in ops.available_isas():
        ops.set_isa(isa)
        for slots in (torch.tensor([37, 5]), torch.tensor([-1, 20])):
            ops.write_kv(k, v, *native, slots)
            with ops.reference_mode():
                ops.write_kv(k, v, *plain, slots)
        for ours, theirs in zip(native, plain, strict=True):
            assert torch.equal(without_nan(ours), without_nan(theirs))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["key", "value", "both"])
def test_a_token_that_is_not_finite_is_nothing_to_those_before_it(
    dtype: torch.dtype, bad: float, where: str
) -> None:
    """Rows of one tile meet each other's values with a weight of 0, and 0 times NaN or infinity is NaN."""
    broken, length = 150, 200
    clean = tokens_of(7, length, SMOLLM2)
    k, v = clean.k.clone(), clean.v.clone()
    if where != "value":
        k[broken, :, 5] = bad
    if where != "key":
        v[broken, :, 63] = bad
    sick = Tokens(clean.q, k, v)
    held = dtype in (torch.float8_e4m3fn, torch.float8_e5m2) and math.isinf(bad)  # as the largest number
    for isa in ops.available_isas():
        ops.set_isa(isa)
        for options in ({}, {"window": 20}):
            expected = PagedBatch.of([clean], dtype=dtype).prefill(length, **options)[0]
            outs = [PagedBatch.of([sick], dtype=dtype).prefill(chunk, **options)[0] for chunk in (1, 37, 200)]
            for out in outs:
                assert torch.equal(out[:broken], expected[:broken]), isa
                assert held or out[broken : broken + 20].isnan().all(), isa
                assert out[broken + 20 :].isnan().all() == (not options and not held), isa
                if options:
                    assert torch.equal(out[broken + 20 :], expected[broken + 20 :]), isa


def without_nan(cache: torch.Tensor) -> torch.Tensor:
    if cache.dtype is torch.int8:  # NaN sits in the scales
        scales = cache.flatten(2)[..., 24 * 16 :].view(torch.float32)
        return torch.cat([cache.flatten(2)[..., : 24 * 16].float(), scales.nan_to_num(123.0)], dim=-1)
    return cache.float().nan_to_num(123.0)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_8_bit_float_is_read_and_written_as_torch_does(dtype: torch.dtype) -> None:
    heads = Heads(1, 1, 256)
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    codes = codes[codes.isfinite()]
    between = (codes[:, None] + codes[None, :]).flatten() / 2  # ties and all else between two codes
    values = torch.cat([codes, between, between * (1 + 2**-20), torch.tensor([1e30, -1e30])])
    values = torch.cat([values, values.new_zeros(-len(values) % 256), torch.full((256,), math.nan)]).view(
        -1, 1, 256
    )
    batch = PagedBatch.of([Tokens(values, values, values)], block_size=128, dtype=dtype)
    largest = torch.finfo(dtype).max
    expected = values.clamp(-largest, largest).to(dtype).float()
    for isa in ops.available_isas():
        ops.set_isa(isa)
        ops.write_kv(values, values, batch.k_cache, batch.v_cache, batch.slots(0, 0, len(values)))
        # a row that sees one key gets that key's values as they are
        count = len(values) - 1
        seen = batch.attend(torch.zeros(count, 1, heads.dim), [count], [count], window=1)
        assert torch.equal(seen, expected[:count, 0]), isa
        last = batch.attend(torch.zeros(1, 1, heads.dim), [1], [count + 1], window=1)
        assert last.isnan().all(), isa


def test_int8_keeps_each_head_within_half_a_step() -> None:
    tokens = tokens_of(1, 40, SMOLLM2)
    batch = PagedBatch.of([tokens], dtype=torch.int8)
    batch.prefill(40)
    last = batch.slots(0, 39, 40).item()
    block, offset = int(last) // 16, int(last) % 16
    page = batch.v_cache[block, 1].flatten()
    scale = page[16 * 64 :].view(torch.float32)[offset]
    stored = page[: 16 * 64].view(16, 64)[offset].float() * scale
    assert float((stored - tokens.v[39, 1]).abs().max()) <= 0.5001 * float(tokens.v[39, 1].abs().max()) / 127


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (60, 4.0)])
def test_sinks_and_alibi(dtype: torch.dtype, window: int, softcap: float) -> None:
    heads = Heads(6, 2, 40)
    sequences = [tokens_of(s, n, heads) for s, n in enumerate([5, 300, 64])]
    sinks = torch.tensor([0.0, 3.0, -2.0, 30.0, -math.inf, 0.5])
    slopes = torch.tensor([2.0**-i for i in range(1, 7)])
    for options in ({"sinks": sinks}, {"alibi_slopes": slopes}, {"sinks": sinks, "alibi_slopes": slopes}):
        outs = []
        for isa in ops.available_isas():
            ops.set_isa(isa)
            batch = PagedBatch.of(sequences, dtype=dtype)
            outs.append(torch.cat(batch.prefill(50, window=window, softcap=softcap, **options)))
        assert all(torch.equal(outs[0], out) for out in outs[1:])
        with ops.reference_mode():
            lengths, q = [5, 300, 64], torch.cat([s.q for s in sequences]).double()
            expected = batch.attend(q, lengths, lengths, window=window, softcap=softcap, **options)
        torch.testing.assert_close(outs[0].double(), expected, rtol=2e-5, atol=5e-6)
        alone = PagedBatch.of([sequences[1]], dtype=dtype)
        whole = alone.prefill(1, window=window, softcap=softcap, **options)[0]
        parts = PagedBatch.of(sequences, dtype=dtype).prefill(50, window=window, softcap=softcap, **options)
        assert torch.equal(whole, parts[1])


def test_a_strong_sink_takes_all_weight() -> None:
    tokens = tokens_of(1, 20, SMOLLM2)
    batch = PagedBatch.of([tokens])
    out = batch.prefill(20, sinks=torch.full((9,), 1e4))[0]
    assert torch.equal(out, torch.zeros_like(out))
    batch = PagedBatch.of([tokens])
    none = batch.prefill(20, sinks=torch.full((9,), -math.inf))[0]
    assert torch.equal(none, PagedBatch.of([tokens]).prefill(20)[0])


def test_wrong_arguments_are_named() -> None:
    tokens = tokens_of(0, 20, SMOLLM2)
    batch = PagedBatch.of([tokens])
    batch.prefill(20)
    with pytest.raises(ValueError, match=r"seq_lens\[0\] is 33"):
        batch.attend(tokens.q[-1:], [1], [33])
    with pytest.raises(ValueError, match="query_start"):
        batch.attend(tokens.q[-1:], [2], [20])
    with pytest.raises(ValueError, match="head_dim 32"):
        batch.attend(torch.randn(1, 9, 32), [1], [20])
    with pytest.raises(ValueError, match="multiple of 3"):
        batch.attend(torch.randn(1, 8, 64), [1], [20])
    batch.block_table[0, 1] = 3
    with pytest.raises(ValueError, match=r"block_table\[0\] names page 3 of 3"):
        batch.attend(tokens.q[-1:], [1], [20])
    with pytest.raises(ValueError, match=r"slot_mapping\[0\] is 48"):
        ops.write_kv(tokens.k[:1], tokens.v[:1], batch.k_cache, batch.v_cache, torch.tensor([48]))
    with pytest.raises(ValueError, match="block_size is 24"):
        ops.kv_cache_shapes(4, 3, 64, 24)
