"""Percentiles, tables and result files."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octavo.entrypoints.bench.outcome import Outcome
from octavo.entrypoints.bench.report import METRICS, LoadReport, Spread, percentile


@pytest.mark.parametrize("count", [1, 2, 3, 10, 997])
def test_percentiles_are_numpys(count: int) -> None:
    rng = random.Random(count)
    values = [rng.expovariate(1.0) for _ in range(count)]
    for percent in (0, 1, 25, 50, 90, 99, 99.9, 100):
        assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))
    spread = Spread.of(values, [95])
    assert spread.mean == pytest.approx(np.mean(values) * 1e3)
    assert spread.std == pytest.approx(np.std(values) * 1e3)
    assert spread.median == pytest.approx(np.median(values) * 1e3)


@pytest.fixture
def report() -> LoadReport:
    outcomes = [Outcome(start, 10, 3, [start + 1, start + 1.5, start + 2]) for start in (0.0, 2.0, 3.5)]
    return LoadReport.of([*outcomes, Outcome(0.0, error="refused")], 5.5, [99, 99.9])


def test_the_file_has_vllms_keys(report: LoadReport) -> None:
    result = report.to_json(["ttft", "e2el"])
    assert result | {
        "duration": 5.5, "completed": 3, "failed": 1, "total_input_tokens": 30, "total_output_tokens": 9,
        "request_throughput": 3 / 5.5, "output_throughput": 9 / 5.5, "total_token_throughput": 39 / 5.5,
        "request_goodput": None, "max_concurrent_requests": 2, "mean_ttft_ms": 1000.0, "median_ttft_ms": 1000.0,
        "std_ttft_ms": 0.0, "p99_ttft_ms": 1000.0, "p99.9_ttft_ms": 1000.0, "mean_e2el_ms": 2000.0,
    } == result  # fmt: skip
    assert not any("tpot" in key or "itl" in key for key in result)


def test_an_end_and_a_start_at_the_same_moment_do_not_overlap() -> None:
    outcomes = [Outcome(start, 1, 1, [start + 2]) for start in (0.0, 2.0)]
    assert LoadReport.of(outcomes, 4.0, []).max_concurrent_requests == 1


def test_the_best_second_counts_tokens_not_pieces() -> None:
    """Two pieces of two tokens each in second 1, one in second 2."""
    outcome = Outcome(10.0, 1, 6, [11.0, 11.5, 12.0])
    assert LoadReport.of([outcome], 2.0, []).max_output_tokens_per_s == 4.0


def test_the_table(report: LoadReport) -> None:
    settings = {"Maximum request concurrency:": None, "Request rate configured (RPS):": 2.0}
    lines = report.lines(list(METRICS), settings)
    assert lines[0] == "============ Serving Benchmark Result ============"
    assert "Successful requests:                     3" in lines
    assert "Request rate configured (RPS):           2.00" in lines
    assert not any(line.startswith(("Maximum request", "Request goodput")) for line in lines)
    at = lines.index("---------------Time to First Token----------------")
    assert lines[at + 1 : at + 5] == [
        "Mean TTFT (ms):                          1000.00",
        "Median TTFT (ms):                        1000.00",
        "P99 TTFT (ms):                           1000.00",
        "P99.9 TTFT (ms):                         1000.00",
    ]
