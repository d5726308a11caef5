"""`octavo serve [MODEL]`."""

from __future__ import annotations

import argparse

from octavo.engine.args import ENGINE_FIELDS, EngineArgs
from octavo.engine.flags import add_flags, values_from
from octavo.entrypoints.openai.args import ServerArgs

# A server takes several models, an engine one.
_SHARED = ENGINE_FIELDS - {"model"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model_tag", nargs="?", metavar="MODEL", help="folder or .gguf file; default: the embedded model"
    )
    add_server_flags(parser)


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """All flags of a server and its engines."""
    parser.set_defaults(model_tag=None)
    parser.add_argument(
        "-m",
        "--model",
        dest="models",
        action="append",
        metavar="MODEL",
        help="as MODEL; given several times, one server offers all of them, each with an engine of its own",
    )
    parser.add_argument(
        "--models-file",
        metavar="FILE",
        help="YAML file with a list of models and the settings of each (docs/models.md)",
    )
    ServerArgs.add_cli_args(parser)
    add_flags(parser, EngineArgs, group="engine", only=_SHARED)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    from octavo.config.logging import configure_logging
    from octavo.entrypoints.openai.served_models import served_models
    from octavo.entrypoints.openai.server import run_server

    configure_logging("server")
    named = [*([args.model_tag] if args.model_tag else []), *(args.models or [])]
    shared = values_from(args, EngineArgs, only=_SHARED)
    models = served_models(named, args.models_file, shared)
    return run_server(models, ServerArgs.from_cli_args(args))
