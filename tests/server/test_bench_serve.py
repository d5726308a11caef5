"""`octavo bench serve` against a whole server over the fake model, and the client's connections against its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.server.harness import Server

from octavo.entrypoints.cli.main import main


def prompts(folder: Path) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"prompt {number}"}) + "\n" for number in range(6)))
    return str(path)


@pytest.mark.parametrize("backend", ["octavo", "openai", "openai-chat"])
def test_end_to_end(server: Server, tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "serve", "--base-url", server.url, "--backend", backend, "--dataset-name", "custom"]
    words += ["--dataset-path", prompts(tmp_path), "--num-prompts", "20", "--output-len", "6", "--ignore-eos"]
    words += ["--max-concurrency", "4", "--num-warmups", "2", "--percentile-metrics", "ttft,e2el"]
    words += [
        "--save-result",
        "--save-detailed",
        "--result-dir",
        str(tmp_path),
        "--result-filename",
        "r.json",
    ]
    before = server.metric("generation_tokens_total")
    assert main(words) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["model_id"], result["backend"], result["request_rate"]) == ("fake", backend, "inf")
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (20, 0, 120)
    assert result["output_lens"] == [6] * 20
    assert all(len(text) == 6 for text in result["generated_texts"])
    assert 1 <= result["max_concurrent_requests"] <= 4
    assert 0 < result["mean_ttft_ms"] <= result["mean_e2el_ms"]
    assert result["total_input_tokens"] == sum(result["input_lens"]) > 0
    assert (
        server.metric("generation_tokens_total") - before == 6 * 23
    )  # with the first check and the warm-ups
    table = capsys.readouterr().out
    assert "Successful requests:                     20\n" in table
    assert "Mean TTFT (ms):" in table
    assert "Mean TPOT (ms):" not in table


def test_refusals_are_counted_and_shown(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "bench",
        "serve",
        "--base-url",
        server.url,
        "--dataset-name",
        "custom",
        "--ready-check-timeout-sec",
        "0",
    ]
    words += ["--dataset-path", prompts(tmp_path), "--num-prompts", "5", "--output-len", "9999"]
    assert main(words) == 1
    answer = capsys.readouterr()
    assert "Failed requests:                         5\n" in answer.out
    assert answer.err.count("A request failed: HTTP 400") == 3
    assert "and 2 more" in answer.err


def test_a_served_name_headers_and_notes(server: Server, tmp_path: Path) -> None:
    """`--served-model-name` is asked for, and `--model` is what the file calls it."""
    words = ["bench", "serve", "--base-url", server.url, "--dataset-name", "custom", "--num-prompts", "2"]
    words += ["--dataset-path", prompts(tmp_path), "--output-len", "3", "--logprobs", "1", "--min-p", "0.1"]
    words += ["--model", "org/fake", "--served-model-name", "fake", "--header", "X-Tenant=a"]
    words += ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    assert main([*words, "--metadata", "machine=a", "version=1"]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["model_id"], result["machine"], result["version"]) == ("org/fake", "a", "1")
    assert (result["completed"], result["failed"]) == (2, 0)


def test_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "serve", "--base-url", "http://127.0.0.1:1", "--ready-check-timeout-sec", "0.2"]
    assert main(words) == 1
    waiting, failed = capsys.readouterr().err.splitlines()
    assert waiting == "Waiting for http://127.0.0.1:1, up to 0.2 s (--ready-check-timeout-sec)."
    assert "No answer from http://127.0.0.1:1" in failed
