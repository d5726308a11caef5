"""`benchmarks.step_overhead` runs, and finds the native calls that it is to leave out."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from benchmarks import step_overhead
from tests.assets import smollm2_gguf

from octavo import LLM, SamplingParams
from octavo.ops import program
from octavo.ops.dispatch import built_module


def test_it_prints_a_line_for_each_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(smollm2_gguf()), "--batch", "2", "--tokens", "3", "--runs", "1"]
    monkeypatch.setattr(sys, "argv", ["step_overhead", *flags])
    step_overhead.main()
    greedy, sampled, ratio = capsys.readouterr().out.splitlines()
    assert greedy.startswith("batch   2 greedy")
    assert sampled.startswith("batch   2 sampled")
    assert "of greedy's speed" in ratio


def native_places() -> list[Any]:
    return [program.Program.run, *(getattr(built_module(), name) for name in ("decode", "argmax", "sample"))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("ahead", [1, 8])
def test_native_calls_are_seen_and_put_back(temperature: float, ahead: int) -> None:
    before = native_places()
    with LLM(str(smollm2_gguf()), max_model_len=64, max_num_seqs=2, max_decode_steps=ahead) as llm:
        sampling = SamplingParams(temperature=temperature, max_tokens=4, ignore_eos=True)
        sample = step_overhead.measure(llm, 2, 4, sampling)
    assert sample.native > 0
    assert sample.outside > 0
    assert native_places() == before
