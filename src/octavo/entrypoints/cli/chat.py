"""`octavo chat`: talk to a running server."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.entrypoints.cli.client import Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from octavo.entrypoints.cli.client import add_connection_arguments

    add_connection_arguments(parser)
    parser.add_argument("--system-prompt", help="first message of the conversation")
    parser.add_argument("-q", "--quick", metavar="MESSAGE", help="send one message, print the answer, leave")
    parser.add_argument(
        "--stats", action="store_true", help="after each answer print time to first token and tokens a second"
    )


def run(args: argparse.Namespace) -> int:
    """One message with --quick, else a conversation."""
    from octavo.entrypoints.cli.client import Server
    from octavo.entrypoints.cli.terminal import Message, converse, print_pieces

    server = Server.from_args(args)

    def answer(history: list[Message]) -> Iterator[str]:
        return _pieces(server, history, args)

    if args.quick is None:
        return converse(answer, args.system_prompt)
    system = [{"role": "system", "content": args.system_prompt}] if args.system_prompt else []
    print_pieces(answer([*system, {"role": "user", "content": args.quick}]))
    return 0


def _pieces(server: Server, history: list[dict[str, Any]], args: argparse.Namespace) -> Iterator[str]:
    body: dict[str, Any] = {"messages": history, "stream_options": {"include_usage": True}}
    body |= {
        name: value for name in ("max_tokens", "temperature") if (value := getattr(args, name)) is not None
    }
    started = time.perf_counter()
    first, tokens = 0.0, 0
    for event in server.stream("/chat/completions", body):
        text = event["choices"][0]["delta"].get("content") if event["choices"] else None
        if text:
            first = first or time.perf_counter()
            yield text
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    if args.stats and first:
        speed = (tokens - 1) / max(time.perf_counter() - first, 1e-9)
        # Not a piece of the answer: it must not enter the conversation.
        sys.stdout.write(f"\n[first token {first - started:.2f} s, {tokens} tokens, {speed:.1f} tokens/s]")
