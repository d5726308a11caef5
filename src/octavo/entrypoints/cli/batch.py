"""`octavo batch -i FILE -o FILE [MODEL]`: answer a file of requests, with an engine in this process or a server's."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, BinaryIO

from octavo.engine.args import EngineArgs
from octavo.engine.flags import add_flags, values_from
from octavo.entrypoints.openai.args import ServerArgs
from octavo.lib.errors import ConfigError

if TYPE_CHECKING:
    import httpx

# Of the server's settings, those that matter without a socket; the rest is about one.
SERVER_FLAGS = frozenset(
    {
        "chat_template", "trust_request_chat_template", "response_role", "max_request_bytes", "enable_auto_tool_choice",
        "tool_call_parser", "reasoning_parser", "tool_parser_plugin", "reasoning_parser_plugin",
        "exclude_tools_when_tool_choice_none",
    }
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model_tag", nargs="?", metavar="MODEL", help="folder or .gguf file; default: the embedded model"
    )
    group = parser.add_argument_group("batch")
    group.add_argument(
        "-i",
        "--input-file",
        required=True,
        metavar="FILE",
        help="JSON lines as OpenAI's Batch API has them; - is standard input",
    )
    group.add_argument(
        "-o",
        "--output-file",
        required=True,
        metavar="FILE",
        help="one record a line of the input; - is standard output",
    )
    group.add_argument(
        "--output-order", choices=("completion", "input"), default="completion",
        help="write records as they are done, or in the order of the input. Default: %(default)s",
    )  # fmt: skip
    group.add_argument(
        "--max-concurrency", type=int, default=128, help="requests under way at most. Default: %(default)s"
    )
    group.add_argument(
        "--url", help="base URL of a running server to ask, instead of an engine in this process"
    )
    group.add_argument("--api-key", help="key to send to --url; default: OCTAVO_API_KEY")
    group.add_argument("--no-progress", action="store_true", help="no progress bar")
    add_flags(parser, ServerArgs, group="requests", only=SERVER_FLAGS)
    EngineArgs.add_cli_args(parser)


def run(args: argparse.Namespace) -> int:
    """Answer every line. The exit code is 0 once all have their record, whatever it says."""
    from octavo.config.env import set_default
    from octavo.config.logging import configure_logging

    if args.max_concurrency < 1:
        raise ConfigError(
            f"--max-concurrency must be at least 1, got {args.max_concurrency}.", param="max_concurrency"
        )
    if args.model_tag is not None:
        args.model = args.model_tag
    set_default("logging_level", "WARNING")
    configure_logging("batch")
    with _opened(args.input_file, "rb") as source, _opened(args.output_file, "wb") as output:
        asyncio.run(_run(args, source, output))
    return 0


@contextlib.contextmanager
def _opened(path: str, mode: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer if mode == "rb" else sys.stdout.buffer
        return
    with open(path, mode) as file:
        yield file  # type: ignore[misc]  # the mode is binary


async def _run(args: argparse.Namespace, source: BinaryIO, output: BinaryIO) -> None:
    from tqdm import tqdm

    from octavo.entrypoints.batch.lines import read_lines
    from octavo.entrypoints.batch.runner import BatchRunner, Summary

    with tqdm(unit="req", file=sys.stderr, disable=args.no_progress) as bar:

        def on_record(summary: Summary) -> None:
            bar.update(1)
            bar.set_postfix(failed=summary.failed, refresh=False)

        async with _client(args) as client:
            runner = BatchRunner(
                client,
                output,
                concurrency=args.max_concurrency,
                order=args.output_order,
                on_record=on_record,
            )
            summary = await runner.run(read_lines(source))
    print(f"{summary.done} answered, {summary.failed} failed.", file=sys.stderr)


@contextlib.asynccontextmanager
async def _client(args: argparse.Namespace) -> AsyncIterator[httpx.AsyncClient]:
    """Asks the server at `--url`, or an application in this process that listens nowhere."""
    import httpx

    if args.url is not None:
        from octavo.config.env import environment

        key = args.api_key or environment().api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # The lines name whole paths.
        base = args.url.rstrip("/").removesuffix("/v1")
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=None) as client:
            yield client
        return

    from octavo.engine.async_llm import AsyncLLM
    from octavo.engine.model_facts import require_text
    from octavo.entrypoints.openai.app import build_app
    from octavo.entrypoints.openai.server import make_state

    args.disable_log_stats = True
    engine_args = EngineArgs.from_cli_args(args)
    require_text(engine_args, "batch")
    engine = AsyncLLM.from_engine_args(engine_args)
    try:
        app = build_app(make_state(engine, ServerArgs(**values_from(args, ServerArgs, only=SERVER_FLAGS))))
        await engine.wait_ready()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://batch", timeout=None) as client,
        ):
            yield client
    finally:
        await engine.shutdown()
