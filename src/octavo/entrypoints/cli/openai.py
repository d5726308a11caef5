"""`octavo openai`: the server under the name, and with the flags alone, of `vllm.entrypoints.openai.api_server`."""

from __future__ import annotations

import argparse

from octavo.entrypoints.cli.serve import add_server_flags, run

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server_flags(parser)
