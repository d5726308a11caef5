"""`octavo bench latency` and `throughput` on a real model, and the profile's sums."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.assets import smollm2_gguf

from octavo.config.env import environment
from octavo.entrypoints.cli.main import main


@pytest.fixture(autouse=True)
def _own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command sets logging up for its process, which here is that of other tests too."""
    monkeypatch.setenv("OCTAVO_LOGGING_LEVEL", "WARNING")
    logger = logging.getLogger("octavo")
    before = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    environment.cache_clear()


SMALL = ["--max-model-len", "256", "--max-num-seqs", "8"]


def test_latency_profile_and_throughput(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["--model", str(smollm2_gguf()), *SMALL]
    out = tmp_path / "out.json"
    shape = [
        "--input-len",
        "24",
        "--output-len",
        "5",
        "--batch-size",
        "2",
        "--num-iters-warmup",
        "0",
        "--num-iters",
        "2",
    ]

    assert main(["bench", "latency", *model, *shape, "--output-json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert len(result["latencies"]) == 2
    assert min(result["latencies"]) <= result["avg_latency"] <= max(result["latencies"])
    assert "Avg latency: " in capsys.readouterr().out

    assert main(["bench", "latency", *model, *shape, "--n", "2", "--disable-detokenize"]) == 0
    assert "Avg latency: " in capsys.readouterr().out

    assert main(["bench", "latency", *model, *shape, "--profile", "--output-json", str(out)]) == 0
    phases = json.loads(out.read_text())
    assert (phases["prefill"]["tokens"], phases["decode"]["tokens"]) == (2 * 2 * 24, 2 * 2 * 4)
    for phase in phases.values():
        in_ops = sum(op["seconds"] for op in phase["ops"].values())
        assert in_ops + phase["outside_seconds"] == pytest.approx(phase["seconds"])
    decode = phases["decode"]
    weights = decode["ops"]["linear"]["weight_bytes"] / decode["steps"]
    assert 0.9 < weights / smollm2_gguf().stat().st_size < 1.2  # each step reads nearly the whole file
    assert "weights GB/s" in capsys.readouterr().out

    out = tmp_path / "new" / "folder" / "out.json"
    load = ["--num-prompts", "5", "--input-len", "16", "--output-len", "4", "--disable-tqdm"]
    assert main(["bench", "throughput", *model, *load, "--output-json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert (result["num_requests"], result["total_num_tokens"]) == (5, 5 * 20)
    assert "Throughput: " in capsys.readouterr().out

    assert main(["bench", "latency", *model, "--input-len", "300"]) == 1
    assert "--max-model-len" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["throughput", "--num-prompts", "3", "--num-warmups", "0", "--disable-tqdm"],
        ["latency", "--num-iters", "1", "--num-iters-warmup", "0"],
        ["latency", "--num-iters", "1", "--num-iters-warmup", "0", "--profile"],
    ],
    ids=" ".join,
)
def test_requests_that_fail_are_no_measurement(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The pool has one page: every request is refused, which is very fast."""
    model = ["--model", str(smollm2_gguf()), *SMALL, "--num-gpu-blocks-override", "1"]
    assert main(["bench", *words, *model, "--input-len", "64", "--output-len", "4"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "requests failed, which is nothing to measure" in shown.err
    assert "key-value cache" in shown.err
