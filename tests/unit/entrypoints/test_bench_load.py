"""Arrivals, and what a load makes of them: in virtual time, against a server whose delays are known."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
from typing import Any

import pytest
from tests.unit.entrypoints import virtual_time

from octavo.entrypoints.bench.datasets import Sample
from octavo.entrypoints.bench.load import LoadArgs, arrival_times, gaps, run_load
from octavo.entrypoints.bench.outcome import Outcome
from octavo.entrypoints.bench.report import LoadReport
from octavo.lib.errors import ConfigError

FIRST, NEXT, PIECES = 0.1, 0.02, 5
E2EL = FIRST + (PIECES - 1) * NEXT


async def answer(sample: Sample) -> Outcome:
    """The first piece after 100 ms, each further one after 20 ms; a prompt `fail` fails at once."""
    clock = asyncio.get_running_loop().time
    outcome = Outcome(clock(), prompt_len=7, output_len=PIECES)
    if sample.text == "fail":
        outcome.error = "refused"
        return outcome
    for index in range(PIECES):
        await asyncio.sleep(NEXT if index else FIRST)
        outcome.piece_times.append(clock())
    return outcome


def load(texts: list[str], args: LoadArgs, **report: Any) -> tuple[list[Outcome], LoadReport]:
    samples = [Sample([], text, PIECES) for text in texts]

    async def main() -> tuple[list[Outcome], float]:
        clock = asyncio.get_running_loop().time
        times = arrival_times(args, len(samples), seed=1)
        outcomes = await run_load(samples, times, answer, clock=clock, max_concurrency=args.max_concurrency)
        return outcomes, clock()

    outcomes, duration = virtual_time.run(main)
    return outcomes, LoadReport.of(outcomes, duration, [50, 99], **report)


def test_one_at_a_time() -> None:
    _, report = load(["a"] * 4, LoadArgs(max_concurrency=1))
    spreads = {
        name: (spread.mean, spread.median, spread.percentiles[99]) for name, spread in report.spreads.items()
    }
    for name, milliseconds in {"ttft": 100, "tpot": 20, "itl": 20, "e2el": 180}.items():
        assert spreads[name] == pytest.approx((milliseconds,) * 3)
    assert report.duration == pytest.approx(4 * E2EL)
    assert report.max_concurrent_requests == 1
    assert report.request_throughput == pytest.approx(1 / E2EL)
    assert report.output_throughput == pytest.approx(PIECES / E2EL)
    assert report.total_token_throughput == pytest.approx((PIECES + 7) / E2EL)


def test_all_at_once() -> None:
    _, report = load(["a"] * 32, LoadArgs())
    assert report.max_concurrent_requests == 32
    assert report.duration == pytest.approx(E2EL)
    assert report.max_output_tokens_per_s == 32 * PIECES


def test_a_limit_holds_and_waiting_in_the_client_is_not_measured() -> None:
    outcomes, report = load(["a"] * 9, LoadArgs(max_concurrency=3))
    assert report.max_concurrent_requests == 3
    assert report.duration == pytest.approx(3 * E2EL)
    assert all(outcome.ttft == pytest.approx(FIRST) for outcome in outcomes)


def test_the_loop_is_open() -> None:
    """A slow server does not slow the arrivals down: at 100 a second all are sent within a second."""
    outcomes, report = load(["a"] * 100, LoadArgs(request_rate=100.0))
    started = [outcome.started for outcome in outcomes]
    assert started == sorted(started)
    assert started[-1] == pytest.approx(0.99)
    assert report.max_concurrent_requests > 5


def test_failures_count_and_do_not_spoil_the_figures() -> None:
    _, report = load(["a", "fail", "a"], LoadArgs())
    assert (report.completed, report.failed, report.total_output_tokens) == (2, 1, 2 * PIECES)
    assert report.spreads["ttft"].mean == pytest.approx(100)


def test_nothing_but_failures() -> None:
    outcomes = [Outcome(0.0, error="refused")]
    report = LoadReport.of(outcomes, 1.0, [99], {"ttft": 1.0})
    assert report.to_json(["ttft"])["p99_ttft_ms"] == 0.0
    assert (report.completed, report.request_goodput, report.max_concurrent_requests) == (0, 0.0, 0)


@pytest.mark.parametrize(("limit", "met"), [(99.0, 0), (101.0, 3)])
def test_goodput(limit: float, met: int) -> None:
    _, report = load(["a"] * 3, LoadArgs(), objectives={"ttft": limit, "tpot": 30.0})
    assert report.request_goodput == pytest.approx(met / E2EL)


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 5.0])
def test_gaps_have_the_mean_and_the_spread_of_their_gamma_distribution(burstiness: float) -> None:
    drawn = gaps([4.0] * 40_000, burstiness, random.Random(3))
    assert statistics.fmean(drawn) == pytest.approx(0.25, rel=0.03)
    assert statistics.pstdev(drawn) == pytest.approx(0.25 / math.sqrt(burstiness), rel=0.05)


def test_a_seed_gives_the_same_arrivals_and_exactly_the_rate() -> None:
    args = LoadArgs(request_rate=10.0)
    times = arrival_times(args, 101, seed=5)
    assert times == arrival_times(args, 101, seed=5) != arrival_times(args, 101, seed=6)
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(10.0)


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert arrival_times(LoadArgs(), 5, seed=0) == [0.0] * 5


@pytest.mark.parametrize(("strategy", "middle"), [("linear", 50.5), ("exponential", 10.0)])
def test_ramps(strategy: str, middle: float) -> None:
    args = LoadArgs(ramp_up_strategy=strategy, ramp_up_start_rps=1.0, ramp_up_end_rps=100.0)
    args.check()
    assert args.rates(3) == pytest.approx([1.0, middle, 100.0])


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"request_rate": 0.0}, "request_rate"),
        ({"request_rate": math.nan}, "request_rate"),
        ({"burstiness": -1.0}, "burstiness"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"ramp_up_start_rps": 1.0}, "ramp_up_start_rps"),
        ({"ramp_up_strategy": "linear", "ramp_up_start_rps": 1.0}, "ramp_up_end_rps"),
        (
            {
                "ramp_up_strategy": "linear",
                "ramp_up_start_rps": 1.0,
                "ramp_up_end_rps": 2.0,
                "request_rate": 3.0,
            },
            "request_rate",
        ),
    ],
)
def test_loads_that_cannot_be(fields: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoadArgs(**fields).check()
    assert caught.value.param == flag
    assert f"--{flag.replace('_', '-')}" in caught.value.message
