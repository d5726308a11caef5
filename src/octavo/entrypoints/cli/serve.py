"""`octavo serve [MODEL]`."""

from __future__ import annotations

import argparse

from octavo.engine.args import EngineArgs
from octavo.entrypoints.openai.args import ServerArgs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model_tag", nargs="?", metavar="MODEL", help="folder or .gguf file; default: the embedded model"
    )
    ServerArgs.add_cli_args(parser)
    EngineArgs.add_cli_args(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    from octavo.config.logging import configure_logging
    from octavo.entrypoints.openai.server import run_server

    if args.model_tag is not None:
        args.model = args.model_tag
    configure_logging("server")
    return run_server(EngineArgs.from_cli_args(args), ServerArgs.from_cli_args(args))
