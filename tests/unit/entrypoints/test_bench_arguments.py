"""Flags of `octavo bench` that contradict each other or mean nothing; profile and roof without a model."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.env import environment
from octavo.entrypoints.bench.profile import Phase
from octavo.entrypoints.bench.roof import measure_roof, rate
from octavo.entrypoints.bench.serve_args import ServeArgs
from octavo.entrypoints.cli.main import main
from octavo.lib.errors import ConfigError
from octavo.ops.program import OpTime


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"base_url": "http://127.0.0.1:1", "port": 9}, "base_url"),
        ({"port": 0}, "port"),
        ({"backend": "openai-chat", "endpoint": "/v1/completions"}, "endpoint"),
        ({"percentile_metrics": "ttft,speed"}, "percentile_metrics"),
        ({"metric_percentiles": "101"}, "metric_percentiles"),
        ({"metric_percentiles": "many"}, "metric_percentiles"),
        ({"goodput": ["ttft"]}, "goodput"),
        ({"goodput": ["itl:3"]}, "goodput"),
        ({"goodput": ["ttft:nan"]}, "goodput"),
        ({"result_dir": "x"}, "result_dir"),
        ({"save_detailed": True}, "save_detailed"),
        ({"num_warmups": -1}, "num_warmups"),
        ({"temperature": -1.0}, "temperature"),
        ({"logprobs": -1}, "logprobs"),
        ({"header": ["X-Tenant"]}, "header"),
        ({"metadata": ["a=1"]}, "metadata"),
        ({"metadata": ["=1"], "save_result": True}, "metadata"),
    ],
)
def test_serve_flags_that_cannot_be(fields: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServeArgs(**fields).check()
    assert caught.value.param == flag
    assert f"--{flag.replace('_', '-')}" in caught.value.message


def test_serve_flags_that_can() -> None:
    args = ServeArgs(goodput=["ttft:200", "e2el:3000.5"], metric_percentiles="50,99.9", backend="openai-chat")
    args.check()
    assert args.objectives == {"ttft": 200.0, "e2el": 3000.5}
    assert args.percents == [50.0, 99.9]
    assert args.way.endpoint == "/v1/chat/completions"


def test_what_every_request_says() -> None:
    args = ServeArgs(min_p=0.1, repetition_penalty=1.2, logprobs=3, extra_body={"seed": 4, "min_p": 0.2})
    body = {"temperature": 0.0, "repetition_penalty": 1.2, "min_p": 0.2, "seed": 4}
    assert args.extra == body | {"logprobs": 3}
    args.backend = "openai-chat"
    assert args.extra == body | {"logprobs": True, "top_logprobs": 3}


def test_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "secret")
    environment.cache_clear()
    try:
        assert ServeArgs(header=["X-Tenant=a=b"]).headers == {
            "Authorization": "Bearer secret",
            "X-Tenant": "a=b",
        }
        assert ServeArgs(header=["Authorization=Basic x"]).headers == {"Authorization": "Basic x"}
    finally:
        environment.cache_clear()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "latency", "--num-iters", "0"], "--num-iters must be at least 1"),
        (["bench", "latency", "--profile", "--enforce-eager"], "--profile and --enforce-eager"),
        (["bench", "latency", "--n", "0"], "--n must be at least 1"),
        (["bench", "startup", "--num-iters-warm", "3"], "use --num-iters-cold"),
        (["bench", "sweep", "plot", "results"], "--plot is part of every sweep"),
        (["bench", "throughput", "--n", "0"], "--n must be at least 1"),
        (["bench", "startup", "--port", "3"], "--port is chosen"),
        (["bench", "sweep", "--serve-param", "port=3"], "--serve-param cannot set port"),
    ],
)
def test_the_command_says_what_is_wrong(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["bench"], ["bench", "speed"], ["bench", "serve", "--num-promts", "3"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    if len(words) > 2:
        assert "did you mean --num-prompts?" in capsys.readouterr().err


def test_a_phase_adds_up() -> None:
    phase = Phase("decode", steps=2, tokens=2, seconds=0.010)
    for _ in range(2):
        phase.add(
            [
                OpTime("linear", 1_000_000, 20_000_000),
                OpTime("norm", 500_000, 0),
                OpTime("linear", 2_000_000, 40_000_000),
            ]
        )
    assert phase.outside == pytest.approx(0.003)
    lines = phase.lines()
    assert lines[0] == "decode: 2 steps, 2 tokens, 200.0 tok/s"
    assert lines[2].split() == ["linear", "2.0", "3.000", "60.0", "20.0"]
    assert lines[3].split() == ["norm", "1.0", "0.500", "10.0"]
    assert lines[4].split()[-2:] == ["1.500", "30.0"]


def test_a_rate_is_the_best_call() -> None:
    """Calls take 4, 3, 1, 2, ... seconds of a clock that only they move; the first one is not counted."""
    now = 0.0
    lengths = iter([4.0, 3.0, 1.0, 2.0, 2.0, 2.0, 2.0])

    def call() -> None:
        nonlocal now
        now += next(lengths)

    assert rate(call, 10.0, 5.0, lambda: now) == 10.0


@pytest.fixture
def hardware_isas(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Without those that other tests emulate: their figures would take a minute and mean nothing."""
    from octavo import ops

    isas = [isa for isa in ops.available_isas() if "emulated" not in isa]
    monkeypatch.setattr(ops, "available_isas", lambda: isas)
    return isas


@pytest.mark.usefixtures("hardware_isas")
def test_the_roof_uses_no_more_threads_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo import ops

    used: list[int] = []
    monkeypatch.setattr("octavo.platforms.core_count", lambda: 384)
    monkeypatch.setattr(ops, "set_num_threads", lambda n, places=None: used.append(n))
    figures = list(measure_roof(seconds=0.0, read_bytes=1 << 20))
    assert max(used) == ops.MAX_THREADS == max(figure.threads for figure in figures)


def test_the_roof_has_each_isa_and_leaves_settings_as_they_were(hardware_isas: list[str]) -> None:
    from octavo import ops

    before = ops.isa(), ops.num_threads()
    figures = list(measure_roof(seconds=0.0, read_bytes=1 << 20))
    assert (ops.isa(), ops.num_threads()) == before
    assert {figure.isa for figure in figures} == (set(hardware_isas) - {"scalar"} or {"scalar"})
    assert {figure.unit for figure in figures} == {"GB/s", "Gop/s", "GFLOP/s"}
    assert all(figure.value > 0 for figure in figures)
