"""`benchmarks.long_context` runs, and counts the bytes that a token keeps."""

from __future__ import annotations

import re
import sys

import pytest
from benchmarks import long_context
from tests.assets import smollm2_gguf

from octavo import LLM


def test_it_prints_how_much_the_bytes_explain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(smollm2_gguf()), "--contexts", "8", "40", "--tokens", "2", "--runs", "1"]
    monkeypatch.setattr(sys, "argv", ["long_context", *flags])
    monkeypatch.setattr(long_context, "read_bandwidth", lambda: 1e9)
    long_context.main()
    assert re.fullmatch(
        r".* more for 1 MiB, .* at 1\.0 GB/s: explained to .*", capsys.readouterr().out.strip()
    )


def test_what_a_token_keeps() -> None:
    """Keys and values of 30 layers with 3 heads of 64 in float16."""
    with LLM(str(smollm2_gguf()), max_model_len=64, max_num_seqs=2) as llm:
        assert long_context.kv_bytes_a_token(llm) == 2 * 30 * 3 * 64 * 2


def test_a_report() -> None:
    told = long_context.report(0.010, 0.016, 100e6, 20e9)
    assert "10.00 ms a token, 16.00 after" in told
    assert "which take 5.00 at 20.0 GB/s: explained to 1.20" in told
