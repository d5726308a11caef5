"""`octavo bench COMMAND`: how fast a model answers, offline and behind a server."""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast

# Name of the module in `octavo.entrypoints.bench`, and what it measures.
COMMANDS = {
    "latency": "one batch after another in this process; --profile shows the time of each kind of op",
    "throughput": "all requests at once in this process",
    "serve": "a running server under load",
    "startup": "from the command `octavo serve` to ready and to the first token",
    "sweep": "a grid of server settings and loads, with a plot",
}


class BenchCommand(Protocol):
    """What each of those modules offers."""

    def run(self, words: list[str]) -> int:
        """Measure. `words` are the flags after the command's name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listing = "\n".join(f"  {name:12}{text}" for name, text in COMMANDS.items())
    parser.epilog = f"commands:\n{listing}\n\n`octavo bench COMMAND --help` lists its flags."
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help="one of those below")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="its flags")


def run(args: argparse.Namespace) -> int:
    """Load that command alone, and run it."""
    command = cast(BenchCommand, importlib.import_module(f"octavo.entrypoints.bench.{args.command}"))
    return command.run(args.words)
