"""`octavo bench startup`: from the command `octavo serve` to ready, and to the first token."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

from octavo.engine.flags import values_from
from octavo.entrypoints.bench.arguments import check_at_least, make_parser, refuse
from octavo.entrypoints.bench.offline import write_json
from octavo.entrypoints.bench.report import percentile
from octavo.entrypoints.bench.server_process import COMMAND, running_server
from octavo.entrypoints.cli.main import parse_words

PERCENTILES = (10, 50, 90, 99)
EPILOG = """All other flags go to `octavo serve`: octavo bench startup MODEL --threads 2.
Nothing is compiled or kept from run to run but the system's cache of files, which the first, uncounted start fills."""


@dataclass(kw_only=True)
class StartupArgs:
    """How often to start."""

    num_iters_cold: int = 5
    """Starts that are counted, each of a process of its own."""
    num_iters_warmup: int = 1
    """Starts before them."""
    prompt: str = "The capital of France is"
    """What is asked once the server is ready."""
    output_json: str | None = None
    """File to write the result to."""


def run(words: list[str]) -> int:
    """Measure and print."""
    parser = make_parser(
        "startup", "From the command `octavo serve` to ready and to the first token.", StartupArgs
    )
    parser.epilog = EPILOG
    parsed, flags = parser.parse_known_args(words)
    args = StartupArgs(**values_from(parsed, StartupArgs))
    check_at_least(args, num_iters_cold=1, num_iters_warmup=0)
    check_serve_flags(flags)
    starts = [measure_start(flags, args.prompt) for _ in range(args.num_iters_warmup + args.num_iters_cold)]
    counted = starts[args.num_iters_warmup :]
    figures = {"ready": [start[0] for start in counted], "first_token": [start[1] for start in counted]}
    for name, seconds in figures.items():
        print("\n".join(_lines(name.replace("_", " "), seconds)))
    write_json(args.output_json, {name: _to_json(seconds) for name, seconds in figures.items()})
    return 0


def measure_start(flags: list[str], prompt: str, command: tuple[str, ...] = COMMAND) -> tuple[float, float]:
    """Seconds to ready and to the first token."""
    with running_server(flags, command) as server:
        return server.ready_seconds, server.first_token_seconds(prompt)


def check_serve_flags(flags: list[str]) -> None:
    """Let the parser of `octavo serve` refuse what it does not know, before anything starts (SystemExit, as argparse).

    Raises:
        ConfigError: where to listen is not free to choose, or vLLM's starts with a warm cache are asked for.
    """
    if any(flag.partition("=")[0] == "--num-iters-warm" for flag in flags):
        raise refuse(
            "num_iters_warm",
            "means nothing here, where no start leaves anything for the next; use --num-iters-cold",
        )
    from octavo.entrypoints.cli import serve

    parser = argparse.ArgumentParser(
        prog="octavo serve", usage="octavo serve [MODEL] [OPTIONS]", allow_abbrev=False
    )
    serve.add_arguments(parser)
    parse_words(parser, flags)
    for flag in flags:
        if flag.partition("=")[0] in ("--host", "--port"):
            raise refuse(flag.partition("=")[0][2:], "is chosen by the benchmark")


def _lines(name: str, seconds: list[float]) -> list[str]:
    spread = ", ".join(f"P{percent} {percentile(seconds, percent):.3f}" for percent in PERCENTILES)
    return [f"Time to {name}: mean {statistics.fmean(seconds):.3f} s, {spread} ({len(seconds)} starts)"]


def _to_json(seconds: list[float]) -> dict[str, object]:
    percentiles = {str(percent): percentile(seconds, percent) for percent in PERCENTILES}
    return {"avg": statistics.fmean(seconds), "times": seconds, "percentiles": percentiles}
