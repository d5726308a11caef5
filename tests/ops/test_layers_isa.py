"""Attention, rope, sampling and logprobs under emulated AVX-512: the bits of the scalar kernels."""

from __future__ import annotations

import pytest
import torch
from tests.ops.paged_batch import Heads, PagedBatch, tokens_of

from octavo import ops


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (53, 3.0)])
@pytest.mark.parametrize("heads", [Heads(6, 2, 40), Heads(3, 1, 64), Heads(2, 2, 16)])
def test_attention(
    heads: Heads, dtype: torch.dtype, window: int, softcap: float, emulated_avx512: str
) -> None:
    outs = []
    for isa in ("scalar", emulated_avx512):
        ops.set_isa(isa)
        batch = PagedBatch.of([tokens_of(s, n, heads) for s, n in enumerate([5, 300, 64])], dtype=dtype)
        outs.append(torch.cat(batch.prefill(50, window=window, softcap=softcap)))
    assert torch.equal(*outs)


def test_rope_sampling_and_logprobs(emulated_avx512: str) -> None:
    generator = torch.Generator().manual_seed(2)
    x, table = torch.randn(4, 3, 80, generator=generator), torch.randn(9, 40, generator=generator)
    logits = torch.randn(30, 700, generator=generator) * 3
    uniform = torch.rand(30, generator=generator, dtype=torch.float64)
    top_k = torch.arange(30, dtype=torch.int32)
    top_p, min_p = torch.linspace(0.3, 1, 30), torch.linspace(0, 0.1, 30)
    outs = []
    for isa in ("scalar", emulated_avx512):
        ops.set_isa(isa)
        outs.append(
            [
                ops.rope(x.clone(), torch.tensor([0, 3, 8, 5]), table),
                ops.rope(x.clone(), torch.tensor([0, 3, 8, 5]), table, interleaved=True),
                ops.argmax(logits),
                ops.sample(logits, torch.linspace(0, 2, 30), top_k, top_p, min_p, uniform),
                *ops.logprobs(logits, top_k.long(), 9),
            ]
        )
    for scalar, emulated in zip(*outs, strict=True):
        assert torch.equal(scalar, emulated)
