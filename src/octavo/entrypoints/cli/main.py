"""`octavo`: parse just enough to know the subcommand, then load that one alone."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from octavo.lib.errors import OctavoError
from octavo.version import __version__

# Name of the module in this package, and what `octavo --help` says of it.
COMMANDS = {
    "serve": "serve a model over HTTP (OpenAI API)",
    "openai": "serve, with flags alone: the model is `--model`",
    "run": "answer one prompt, or chat in the terminal, without a server",
    "chat": "chat with a running server",
    "complete": "complete text with a running server",
    "batch": "answer a file of requests (OpenAI batch JSONL)",
    "bench": "measure latency, throughput, a server under load, start-up",
    "models": "list what can be run",
    "doctor": "look at this machine and this installation",
}

# Where argparse's own line would fill a screen.
USAGES = {
    "batch": "octavo batch -i FILE -o FILE [MODEL] [OPTIONS]",
    "serve": "octavo serve [MODEL] [OPTIONS]",
    "run": "octavo run [MODEL] [PROMPT] [OPTIONS]",
}


class Command(Protocol):
    """What each module of this package offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script. Returns the exit code: 0 good, 1 failed, 2 wrong usage, 130 interrupted."""
    _open_standard_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in COMMANDS:
        return _general(words)
    command = cast(Command, importlib.import_module(f"octavo.entrypoints.cli.{words[0]}"))
    parser = argparse.ArgumentParser(
        prog=f"octavo {words[0]}",
        usage=USAGES.get(words[0]),
        description=f"{COMMANDS[words[0]][0].upper()}{COMMANDS[words[0]][1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    try:
        return command.run(parse_words(parser, words[1:]))
    except OctavoError as error:
        print(f"octavo: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1


def _open_standard_streams() -> None:
    """Give a standard stream that our parent closed a harmless end: else the next file opened would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 (open to the end); takes the lowest free number
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def parse_words(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Flags and plain words in any order; an unknown flag ends the program with the known one that looks like it."""
    if any(action.nargs == argparse.REMAINDER for action in parser._actions):
        return parser.parse_args(words)  # a command with commands of its own, which read the rest
    known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    args, rest = parser.parse_known_intermixed_args(words)
    if rest:
        alike = difflib.get_close_matches(rest[0].split("=")[0], known, n=1)
        hint = f"; did you mean {alike[0]}?" if alike else f"; `{parser.prog} --help` lists what there is"
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    return args


def _general(words: list[str]) -> int:
    """`octavo`, `octavo --help`, `octavo --version`, and what is neither."""
    listing = "\n".join(f"  {name:10}{text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="octavo",
        usage="octavo COMMAND [OPTIONS]",
        description="Inference and serving for large language models.",
        epilog=f"commands:\n{listing}\n\n`octavo COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "command", nargs="?", choices=list(COMMANDS), metavar="COMMAND", help="one of those below"
    )
    parser.parse_args(words)
    parser.print_help()
    return 0 if not words else 2


if __name__ == "__main__":
    sys.exit(main())
