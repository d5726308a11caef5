"""`benchmarks.quality`: the divergence, and that it really expands weights to float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from benchmarks import quality
from benchmarks.compare.figures import Model
from benchmarks.compare.make_llama_goldens import expand

from octavo import ops
from tests.assets import smollm2_gguf
from tests.models import tiny
from tests.models.gguf_export import export

CONTEXT = 64
NAME = "LlamaForCausalLM"
needs_reference = pytest.mark.skipif(
    quality.REFERENCE_ISA not in ops.available_isas(), reason=f"the reference is of {quality.REFERENCE_ISA}"
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short texts; the instruction set and the threads as they were."""
    monkeypatch.setattr(quality, "CONTEXT", CONTEXT)
    isa, threads = ops.isa(), ops.num_threads()
    yield
    ops.set_isa(isa)
    ops.set_num_threads(threads)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    export(tiny.reference(NAME), path, gguf.GGMLQuantizationType.Q8_0)
    return path


def logits(model: Path, chunks: quality.Chunks, **how: bool) -> torch.Tensor:
    return torch.cat(list(quality.octavo_logits(model, ops.isa(), chunks, **how)))


def chunks() -> quality.Chunks:
    return [tiny.random_tokens(CONTEXT, seed) for seed in (1, 2)]


def test_divergence_is_kullback_leiblers() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(5, 7, generator=generator) * 3
    measured = reference + torch.randn(5, 7, generator=generator) * 0.1
    measured[3] = reference[3] + 12.5  # a constant changes nothing
    measured[4] = reference[4].flip(0)
    p, q = reference.double().log_softmax(1), measured.double().log_softmax(1)
    expected = (p.exp() * (p - q)).sum(1)
    padded = torch.cat([measured, torch.zeros(5, 2)], dim=1)  # columns beyond the reference's vocabulary
    found = quality.distance(reference.split(2), padded.split(2))
    assert found.divergences.dtype == torch.float64
    torch.testing.assert_close(found.divergences, expected, rtol=1e-5, atol=1e-6)
    assert found.agreements.tolist() == (p.argmax(1) == q.argmax(1)).tolist()


def test_small_divergences_survive_float32() -> None:
    """Half the squared change, weighed by p: far below what float32 resolves of the logits' own sums."""
    reference = torch.zeros(1, 4) + 100
    measured = reference + torch.tensor([[1.0, -1.0, 1.0, -1.0]]) * 2**-10
    found = quality.distance([reference], [measured])
    assert float(found.divergences) == pytest.approx(2**-21, rel=1e-3)


def test_parts_of_different_positions_are_refused() -> None:
    with pytest.raises(ValueError):
        quality.distance([torch.zeros(1, 2)], [])


def test_expanded_weights_are_the_files_in_float32(model: Path, tmp_path: Path) -> None:
    """The same bits as of a file that holds float32; other ones than those of quantised weights."""
    wide = tmp_path / "wide.gguf"
    expand(model, wide)
    expanded = logits(model, chunks(), expanded=True)
    assert torch.equal(expanded, logits(wide, chunks(), expanded=True))
    assert not torch.equal(expanded, logits(model, chunks()))


def test_expanded_logits_are_those_of_transformers(tmp_path: Path) -> None:
    path = tmp_path / "float.gguf"
    export(tiny.reference(NAME), path, gguf.GGMLQuantizationType.F16)
    expected = [
        tiny.reference_logits(tiny.rounded_reference(NAME, torch.float16), chunk) for chunk in chunks()
    ]
    assert (logits(path, chunks(), expanded=True) - torch.cat(expected)).abs().max() < 1e-4


def test_text_begins_with_bos_where_the_model_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = quality.text_chunks(smollm2_gguf(), 2 * CONTEXT)
    assert len(first) == len(second) == CONTEXT
    with pytest.raises(SystemExit, match="--tokens must be in"):
        quality.text_chunks(smollm2_gguf(), CONTEXT - 1)


@needs_reference
def test_the_table(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Octavo beside a llama.cpp that gives the reference's own logits."""
    cache = tmp_path / "cache"
    (tmp_path / "llamacpp/release/llama.cpp").mkdir(parents=True)

    def build(source: Path, binaries: Path, target: Path) -> None:
        target.write_text(f"#!/bin/sh\ncat > {tmp_path}/asked\ncat {cache}/tiny-????????????.f32\n")
        target.chmod(0o755)

    replaced: Any = {"tiny": Model(256, lambda folder: model, {}, {})}
    monkeypatch.setattr(quality, "MODELS", replaced)
    monkeypatch.setattr(quality, "build", build)
    monkeypatch.setattr(quality, "text_chunks", lambda path, tokens: chunks())
    flags = ["--models", "tiny", "--isas", ops.isa(), "--folder", str(tmp_path), "--cache", str(cache)]
    monkeypatch.setattr(sys, "argv", ["quality", *flags])
    quality.main()
    header, _, octavo, *llama = capsys.readouterr().out.splitlines()
    assert header.startswith("| tiny")
    assert octavo.startswith(f"| octavo, {ops.isa()} | ")
    assert 1e-9 < float(octavo.split(" | ")[1]) < 1e-2
    assert len(llama) == 3
    assert all(row.split(" | ")[1:] == ["0.000e+00", "0e+00", "0.000e+00", "100.00 |"] for row in llama)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [list(map(int, line.split())) for line in asked] == chunks()
