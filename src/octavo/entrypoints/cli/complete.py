"""`octavo complete`: let a running server continue a text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.entrypoints.cli.client import Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from octavo.entrypoints.cli.client import add_connection_arguments

    add_connection_arguments(parser)
    parser.add_argument(
        "-q", "--quick", metavar="PROMPT", help="the text to continue; default: lines from standard input"
    )


def run(args: argparse.Namespace) -> int:
    """One prompt with --quick, else each line of the input."""
    from octavo.entrypoints.cli.client import Server
    from octavo.entrypoints.cli.terminal import print_pieces

    server = Server.from_args(args)
    prompts = [args.quick] if args.quick is not None else (line.rstrip("\n") for line in sys.stdin)
    for prompt in prompts:
        if prompt:
            print_pieces(_pieces(server, prompt, args))
    return 0


def _pieces(server: Server, prompt: str, args: argparse.Namespace) -> Iterator[str]:
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": args.max_tokens or 128}
    if args.temperature is not None:
        body["temperature"] = args.temperature
    for event in server.stream("/completions", body):
        if event["choices"]:
            yield event["choices"][0]["text"]
