"""Grids, resuming, the plot."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.entrypoints.bench import plot, sweep
from octavo.entrypoints.bench.grid import name_of, read_grid, to_flags
from octavo.entrypoints.bench.startup import check_serve_flags
from octavo.lib.errors import ConfigError, OctavoError


def test_products_of_lists_and_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    path.write_text('[{"max-model-len": 512}, {"max_model_len": 1024}]')
    grid = read_grid(str(path), ["threads=1,2", "enforce-eager=true"], "serve_params")
    assert [tuple(one.values()) for one in grid] == [
        (512, 1, True), (512, 2, True), (1024, 1, True), (1024, 2, True),
    ]  # fmt: skip
    assert read_grid(None, None, "serve_param") == [{}]


def test_flags_and_names() -> None:
    setting = {"max_model_len": "8k", "enforce_eager": False, "plot": True, "goodput": ["ttft:1", "tpot:2"]}
    assert to_flags(setting) == [
        "--max-model-len", "8k", "--no-enforce-eager", "--plot", "--goodput", "ttft:1", "tpot:2",
    ]  # fmt: skip
    assert name_of({}) == "default"
    assert name_of({"model": "a/b c", "n": 1}) == "model=a_b_c-n=1"


@pytest.mark.parametrize("text", ["threads", "=1", "threads="])
def test_lists_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--bench-param takes NAME=VALUE"):
        read_grid(None, [text], "bench_param")


@pytest.mark.parametrize("content", ["{", "[]", "[1]", "3"])
def test_files_that_are_no_grid(tmp_path: Path, content: str) -> None:
    path = tmp_path / "grid.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="--serve-params"):
        read_grid(str(path), None, "serve_params")


class Bench:
    """Stands for `octavo bench serve`: writes a result, and notes what was asked. Fails at max_concurrency 99."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, words: list[str]) -> str:
        value = dict(itertools.pairwise(words))
        path = Path(value["--result-dir"], value["--result-filename"])
        self.calls.append((path.parent.name, path.name))
        if value["--max-concurrency"] == "99":
            return "refused"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"output_throughput": 10.0 * len(self.calls), "backend": "octavo"}))
        return ""


# A server that says it is ready; the port is its last word.
SERVER = (
    "import http.server, sys\n"
    "class Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self): self.send_response(200); self.end_headers()\n"
    "http.server.HTTPServer(('127.0.0.1', int(sys.argv[-1])), Handler).serve_forever()\n"
)


def args_for(folder: Path, server: Path) -> sweep.SweepArgs:
    server.write_text(SERVER)
    return sweep.SweepArgs(
        output_dir=str(folder), num_runs=2, serve_cmd=f"{sys.executable} {server}", server_ready_timeout=60
    )


def test_a_sweep_resumes_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = args_for(tmp_path / "out", tmp_path / "server.py")
    points = sweep.make_points(args, None, ["max_concurrency=1,8,99"])
    broken = points[0].file(1)
    broken.parent.mkdir(parents=True)
    broken.write_text('{"output_thr')  # half a file counts as none
    bench = Bench()
    assert sweep.run_missing(args, points, bench) == 2
    assert bench.calls == [(f"max_concurrency={n}", f"run={run}.json") for n in (1, 8, 99) for run in (0, 1)]
    bench.calls.clear()
    assert sweep.run_missing(args, points[:2], bench) == 0
    assert bench.calls == []
    records = sweep.summarise(args, points)
    assert records == [
        {"serve": {}, "bench": {"max_concurrency": 1}, "runs": 2, "output_throughput": 15.0},
        {"serve": {}, "bench": {"max_concurrency": 8}, "runs": 2, "output_throughput": 35.0},
    ]
    assert "refused" in capsys.readouterr().out


def test_a_server_that_does_not_start_is_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = args_for(tmp_path / "out", tmp_path / "server.py")
    args.serve_cmd = f"{sys.executable} -c \"import sys; sys.exit(sys.argv[1:] and 'no such model')\""
    points = sweep.make_points(args, ["model=a,b"], ["max_concurrency=1"])
    assert sweep.run_missing(args, points, Bench()) == 2
    assert capsys.readouterr().err.count("no such model") == 2


@pytest.mark.parametrize(
    ("serve", "bench", "flag"),
    [
        (["port=1"], None, "serve_param"),
        (None, ["save_result=true"], "bench_param"),
        (["a=1,1"], None, "serve_param"),
    ],
)
def test_settings_that_a_sweep_cannot_have(serve: Any, bench: Any, flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep.make_points(sweep.SweepArgs(), serve, bench)
    assert caught.value.param == flag


def test_a_dry_run_prints_what_would_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--serve-param",
        "threads=1,2",
        "--bench-param",
        "max_concurrency=4",
        "-o",
        str(tmp_path),
        "--num-runs",
        "1",
    ]
    assert sweep.run(["serve", *words, "--dry-run"]) == 0  # vLLM's word for it
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "octavo serve --threads 1"
    assert lines[1].startswith("octavo bench serve --max-concurrency 4 --base-url http://127.0.0.1:PORT ")
    assert len(lines) == 4
    assert list(tmp_path.iterdir()) == []


RECORDS = [
    {
        "serve": {"threads": threads},
        "bench": {"max_concurrency": load},
        "output_throughput": 10.0 * threads * load,
    }
    for threads in (1, 2)
    for load in (8, 1)
]


def test_lines_of_a_plot() -> None:
    assert plot.lines_of(RECORDS, "max_concurrency", "output_throughput") == {
        "threads=1": [(1.0, 10.0), (8.0, 80.0)],
        "threads=2": [(1.0, 20.0), (8.0, 160.0)],
    }
    assert set(plot.lines_of(RECORDS, "threads", "output_throughput")) == {"default"}


@pytest.mark.parametrize(
    ("bench", "serve", "axis"),
    [
        (
            {"dataset_name": ["a", "b", "c"], "request_rate": [1, "inf", 2.5]},
            {"threads": [1, 2, 3]},
            "request_rate",
        ),
        ({"request_rate": [4, "inf", "inf"]}, {"threads": [1, 2, 3]}, "threads"),
        ({"ignore_eos": [True, False, True]}, {}, None),
    ],
)
def test_the_axis_is_the_first_number_that_varies(
    bench: dict[str, list[Any]], serve: dict[str, list[Any]], axis: str | None
) -> None:
    def nth(settings: dict[str, list[Any]], index: int) -> dict[str, Any]:
        return {key: values[index] for key, values in settings.items()}

    assert plot.varying([{"bench": nth(bench, n), "serve": nth(serve, n)} for n in range(3)]) == axis


def test_a_sweep_over_rates_is_drawn_without_the_infinite_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    args = sweep.SweepArgs(output_dir=str(tmp_path), num_runs=1)
    for name, loads in (("rates", ["request_rate=2,4,inf"]), ("nothing", ["dataset_name=random"])):
        args.output_dir = str(tmp_path / name)
        points = sweep.make_points(args, None, loads)
        for point in points:
            point.folder.mkdir(parents=True)
            point.file(0).write_text('{"output_throughput": 5.0}')
        sweep._finish(args, points)
    assert (tmp_path / "rates/plot.png").exists()
    assert not (tmp_path / "nothing/plot.png").exists()
    output = capsys.readouterr().out
    assert "plot.png; 1 of 3 combinations have no number there" in output
    assert "No plot: no setting takes several numbers" in output


@pytest.mark.parametrize(
    ("x", "y", "flag"), [("nothing", "output_throughput", "plot_x"), ("threads", "nothing", "plot_y")]
)
def test_an_axis_that_is_nowhere(x: str, y: str, flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plot.lines_of(RECORDS, x, y)
    assert caught.value.param == flag


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot.plot_sweep(RECORDS, "max_concurrency", "output_throughput", tmp_path / "plot.png") == 4
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OctavoError, match="pip install matplotlib"):
        plot.require_matplotlib()


def test_startup_refuses_what_serve_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    check_serve_flags(["model.gguf", "--threads", "2"])
    with pytest.raises(SystemExit):
        check_serve_flags(["--no-such-flag"])
    assert "--no-such-flag" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--port"):
        check_serve_flags(["--port=3"])
