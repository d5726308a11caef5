"""`octavo bench sweep`: each server setting under each load, as often as asked; resumes where it was stopped."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.engine.flags import values_from
from octavo.entrypoints.bench.arguments import check_at_least, make_parser, refuse
from octavo.entrypoints.bench.grid import Setting, name_of, read_grid, to_flags
from octavo.entrypoints.bench.server_process import COMMAND, running_server
from octavo.entrypoints.cli.main import parse_words
from octavo.lib.errors import OctavoError

BENCH = (sys.executable, "-m", "octavo.entrypoints.cli.main", "bench", "serve")
SUMMARY, PLOT = "summary.json", "plot.png"
EPILOG = """example:
  octavo bench sweep --serve-param threads=1,2 --bench-param max_concurrency=1,4,16 \\
      --bench-cmd "octavo bench serve --num-prompts 64 --input-len 128 --output-len 64 --ignore-eos" -o results

Each run is OUTPUT_DIR/SERVER_SETTING/LOAD/run=N.json; those that exist are not run again."""


@dataclass(kw_only=True)
class SweepArgs:
    """What stays the same over the grid, and where results go."""

    serve_cmd: str = "octavo serve"
    """Command of the server; its settings are added. It must take --host and --port and answer GET /ready."""
    bench_cmd: str = "octavo bench serve"
    """Command of the load; its settings, the server and the file are added."""
    serve_params: str | None = None
    """JSON file with a list of server settings (objects: flags without dashes, and values)."""
    bench_params: str | None = None
    """JSON file with a list of loads."""
    output_dir: str = "results"
    """Folder of the results."""
    num_runs: int = 3
    """Runs of each combination; the summary has the median."""
    server_ready_timeout: float = 600.0
    """Seconds that a server may take to start."""
    plot: bool = True
    """Draw plot.png (needs matplotlib)."""
    plot_x: str | None = None
    """Key of the horizontal axis: of the load, the server's setting or the result. Default: the first that varies."""
    plot_y: str = "output_throughput"
    """Key of the vertical axis."""
    dry_run: bool = False
    """Only print the commands."""


@dataclass(frozen=True)
class Point:
    """One combination."""

    serve: Setting
    bench: Setting
    folder: Path

    def file(self, run: int) -> Path:
        return self.folder / f"run={run}.json"

    def missing(self, runs: int) -> list[int]:
        """Runs that have no readable result."""
        return [run for run in range(runs) if read_result(self.file(run)) is None]


def run(words: list[str]) -> int:
    """Run what is missing, then write summary and plot. Exit code 1 if a run failed."""
    parser = make_parser("sweep", "Each server setting under each load.", SweepArgs)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    for kind, what in (("serve", "a setting of the server"), ("bench", "a setting of the load")):
        parser.add_argument(
            f"--{kind}-param", action="append", metavar="NAME=V,V", help=f"values of {what}; may be repeated"
        )
    parser.add_argument("-o", dest="output_dir", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parsed = parse_words(parser, without_vllms_word(words))
    args = SweepArgs(**values_from(parsed, SweepArgs))
    check_at_least(args, num_runs=1, server_ready_timeout=0)
    points = make_points(args, parsed.serve_param, parsed.bench_param)
    if args.dry_run:
        print("\n".join(shlex.join(line) for line in _commands(args, points)))
        return 0
    if args.plot:
        from octavo.entrypoints.bench.plot import require_matplotlib

        require_matplotlib()  # before hours of measuring, not after
    failed = run_missing(args, points)
    _finish(args, points)
    return 1 if failed else 0


def without_vllms_word(words: list[str]) -> list[str]:
    """`vllm bench sweep serve` is our `sweep`.

    Raises:
        ConfigError: another of its words; the message says what does the same.
    """
    if words and words[0] in ("plot", "plot_pareto"):
        raise refuse(
            "plot",
            "is part of every sweep; its command again, with another --plot-x or --plot-y, only draws again",
        )
    return words[1:] if words[:1] == ["serve"] else words


def make_points(
    args: SweepArgs, serve_lists: Sequence[str] | None, bench_lists: Sequence[str] | None
) -> list[Point]:
    """The whole grid.

    Raises:
        ConfigError: a grid that cannot be read, or a setting that the sweep sets itself.
    """
    serves = read_grid(args.serve_params, serve_lists, "serve_params" if args.serve_params else "serve_param")
    loads = read_grid(args.bench_params, bench_lists, "bench_params" if args.bench_params else "bench_param")
    for field, settings, reserved in (
        ("serve_param", serves, {"host", "port"}),
        ("bench_param", loads, {"host", "port", "base_url", "save_result", "result_dir", "result_filename"}),
    ):
        taken = sorted(reserved & {name for setting in settings for name in setting})
        if taken:
            raise refuse(field, f"cannot set {taken[0]}: the sweep does")
    root = Path(args.output_dir)
    points = [Point(serve, load, root / name_of(serve) / name_of(load)) for serve in serves for load in loads]
    if len({point.folder for point in points}) < len(points):
        raise refuse("serve_param", "or --bench-param names a combination twice")
    return points


def run_missing(args: SweepArgs, points: Sequence[Point], run_bench: Callable[..., str] | None = None) -> int:
    """Start a server for each setting that has runs to do, and do them. Returns how many failed."""
    failed = 0
    by_server: dict[str, list[Point]] = {}
    for point in points:
        if point.missing(args.num_runs):
            by_server.setdefault(name_of(point.serve), []).append(point)
    for name, group in by_server.items():
        print(f"Server {name}: {sum(len(point.missing(args.num_runs)) for point in group)} runs")
        command, flags = _command(args.serve_cmd, "octavo serve", COMMAND), to_flags(group[0].serve)
        try:
            with running_server(flags, command, timeout=args.server_ready_timeout) as server:
                failed += _run_loads(args, group, server.port, run_bench or _run_bench)
        except OctavoError as error:
            print(f"octavo: {error.message}", file=sys.stderr)
            failed += 1
    return failed


def read_result(path: Path) -> dict[str, Any] | None:
    """A finished run; None: there is none, or half of one."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def summarise(args: SweepArgs, points: Sequence[Point]) -> list[dict[str, Any]]:
    """One record a combination that has results: its settings and the median of each figure."""
    records = []
    for point in points:
        results = [result for run in range(args.num_runs) if (result := read_result(point.file(run)))]
        if results:
            records.append(
                {"serve": dict(point.serve), "bench": dict(point.bench), "runs": len(results)}
                | _medians(results)
            )
    return records


def _medians(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def figure(name: str) -> bool:
        return all(type(result.get(name)) in (int, float) for result in results)

    return {
        name: statistics.median(result[name] for result in results) for name in results[0] if figure(name)
    }


def _run_loads(args: SweepArgs, points: Sequence[Point], port: int, run_bench: Callable[..., str]) -> int:
    failed = 0
    for point in points:
        for run in point.missing(args.num_runs):
            error = run_bench(_load_words(args, point, run, port))
            print(f"  {name_of(point.bench)}, run {run}: {error or 'done'}")
            failed += bool(error)
    return failed


def _run_bench(words: Sequence[str]) -> str:
    """What went wrong; empty if nothing did."""
    try:
        answer = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if answer.returncode == 0 else (answer.stderr.strip().splitlines() or ["failed"])[-1]


def _load_words(args: SweepArgs, point: Point, run: int, port: int) -> list[str]:
    command = _command(args.bench_cmd, "octavo bench serve", BENCH)
    return [*command, *_load_flags(point, run, port)]


def _load_flags(point: Point, run: int, port: int | str) -> list[str]:
    where = ["--base-url", f"http://127.0.0.1:{port}", "--disable-tqdm"]
    file = ["--save-result", "--result-dir", str(point.folder), "--result-filename", point.file(run).name]
    return [*to_flags(point.bench), *where, *file]


def _command(text: str, ours: str, command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command; our own runs in this interpreter, wherever `octavo` is installed."""
    words, own = shlex.split(text), ours.split()
    return (*command, *words[len(own) :]) if words[: len(own)] == own else tuple(words)


def _commands(args: SweepArgs, points: Sequence[Point]) -> list[list[str]]:
    lines: list[list[str]] = []
    for point in points:
        server = [*shlex.split(args.serve_cmd), *to_flags(point.serve)]
        if server not in lines:
            lines.append(server)
        load = shlex.split(args.bench_cmd)
        lines += [[*load, *_load_flags(point, run, "PORT")] for run in point.missing(args.num_runs)]
    return lines


def _finish(args: SweepArgs, points: Sequence[Point]) -> None:
    records = summarise(args, points)
    root = Path(args.output_dir)
    root.mkdir(parents=True, exist_ok=True)
    (root / SUMMARY).write_text(json.dumps(records, indent=2), encoding="utf-8")
    print(f"Written to {root / SUMMARY}")
    if args.plot and records:
        _draw(records, args, root / PLOT)


def _draw(records: list[dict[str, Any]], args: SweepArgs, path: Path) -> None:
    from octavo.entrypoints.bench.plot import plot_sweep, varying

    axis = args.plot_x or varying(records)
    if axis is None:
        print("No plot: no setting takes several numbers")
        return
    drawn = plot_sweep(records, axis, args.plot_y, path)
    left_out = f"; {len(records) - drawn} of {len(records)} combinations have no number there"
    print(f"Written to {path}{left_out if drawn < len(records) else ''}")
