"""Running the server: claim the port, start the engine, serve, drain.

Order matters for a start within seconds: the engine process is on its way before the web framework is imported.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING

from octavo.config.env import environment
from octavo.lib.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from octavo.engine.async_llm import AsyncLLM

    from octavo.engine.args import EngineArgs
    from octavo.entrypoints.openai.args import ServerArgs
    from octavo.entrypoints.openai.state import ServerState

logger = logging.getLogger(__name__)

BACKLOG = 2048


def claim_port(host: str, port: int) -> socket.socket:
    """Bind and listen before anything slow happens, so that a taken port is known at once.

    Raises:
        ConfigError: the address cannot be had; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another one with --port.",
            param="port",
        ) from error
    listener.setblocking(False)
    return listener


def run_server(engine_args: EngineArgs, server_args: ServerArgs) -> int:
    """Serve until a signal comes. Returns the exit code."""
    listener = claim_port(server_args.host, server_args.port)
    try:
        return asyncio.run(_serve(engine_args, server_args, listener))
    finally:
        listener.close()


async def _serve(engine_args: EngineArgs, server_args: ServerArgs, listener: socket.socket) -> int:
    from octavo.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(engine_args)
    try:
        state = _server_state(engine, server_args)
        server = _make_server(state, server_args)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        starting = asyncio.create_task(engine.wait_ready())
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _announce(state, server_args, listener)
        else:
            starting.cancel()
        await serving
        return 0
    except OctavoError as error:
        logger.error("%s", error.message)
        return 1
    finally:
        await engine.shutdown()


def _server_state(engine: AsyncLLM, server_args: ServerArgs) -> ServerState:
    from octavo.entrypoints.openai.renderer import Renderer
    from octavo.entrypoints.openai.state import ServerState
    from octavo.entrypoints.openai.stats import MetricsListener
    from octavo.metrics import EngineMetrics
    from octavo.tokenizers import ChatTemplate

    tokenizer = engine.tokenizer
    config = engine.config
    source = _template_source(server_args.chat_template) or tokenizer.chat_template
    template = ChatTemplate(source, tokenizer) if source else None
    metrics = EngineMetrics(
        config.model.served_model_names[0],
        prefix=config.observability.metrics_prefix,
        max_model_len=config.model.max_model_len,
    )
    engine.add_listener(MetricsListener(metrics))
    return ServerState(engine, Renderer(tokenizer, template, server_args), metrics, server_args)


def _template_source(given: str | None) -> str | None:
    """`--chat-template`: a file's text, or the template itself if it holds Jinja."""
    if given is None or "{{" in given or "{%" in given:
        return given
    try:
        with open(given, encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        raise ConfigError(f"--chat-template {given!r}: {error.strerror}.", param="chat_template") from error


def _make_server(state: ServerState, args: ServerArgs) -> DrainingServer:
    import uvicorn

    from octavo.entrypoints.openai.app import build_app

    keys = tuple(args.api_key or ()) or tuple(filter(None, (environment().api_key,)))
    config = uvicorn.Config(
        build_app(state, keys),
        log_level=args.uvicorn_log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(args.shutdown_timeout)),
        lifespan="on",
    )
    return DrainingServer(uvicorn.Server(config), state)


class DrainingServer:
    """Uvicorn with our meaning of signals: the first one drains, the second one ends at once."""

    def __init__(self, server: uvicorn.Server, state: ServerState) -> None:
        self._server = server
        self._state = state

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Serve until the first signal, then until the running requests are through or their time is up."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        # Uvicorn would install handlers of its own in `serve`; what it runs inside is the same without them.
        await self._server._serve(sockets)

    def _on_signal(self, number: int, _: FrameType | None = None) -> None:
        if self._state.draining:
            logger.warning("Second %s: closing at once.", signal.Signals(number).name)
            self._server.force_exit = True
        else:
            logger.info(
                "%s: finishing the running requests; a second signal ends them.", signal.Signals(number).name
            )
            self._state.draining = True
        self._server.should_exit = True


def _announce(state: ServerState, args: ServerArgs, listener: socket.socket) -> None:
    """Say where the server listens, with a command that works as it stands."""
    port = listener.getsockname()[1]
    host = "127.0.0.1" if args.host in ("0.0.0.0", "::") else args.host
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    model = state.model_names[0]
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'
    key = " -H 'Authorization: Bearer YOUR_KEY'" if args.api_key or environment().api_key else ""
    print(f"\nOctavo serves {model} at {address}. Try:\n", file=sys.stderr)
    print(
        f"  curl {address}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'\n",
        file=sys.stderr,
        flush=True,
    )
