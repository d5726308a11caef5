"""Running the server: claim the port, start the engine, serve, drain.

Order matters for a start within seconds: the engine process is on its way before the web framework is imported.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.config.env import environment
from octavo.lib.errors import ConfigError, DrainingError, OctavoError

if TYPE_CHECKING:
    import uvicorn

    from octavo.engine.async_llm import AsyncLLM
    from octavo.entrypoints.openai.args import ServerArgs
    from octavo.entrypoints.openai.served_models import ServedModel
    from octavo.entrypoints.openai.state import ServerState

logger = logging.getLogger(__name__)

BACKLOG = 2048
# For the last events of streams whose time was up.
_LAST_WORDS_SECONDS = 3
MAX_PORT = 65535


def claim_port(host: str, port: int) -> socket.socket:
    """Bind and listen before anything slow happens, so that a taken port is known at once.

    Raises:
        ConfigError: the address cannot be had; the message names it.
    """
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"--port must be between 0 and {MAX_PORT}, got {port}.", param="port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        # A name that does not resolve (gaierror), and an address of another machine, are the host's fault.
        flag = "host" if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL else "port"
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another one with --{flag}.",
            param=flag,
        ) from error
    listener.setblocking(False)
    return listener


def claim(args: ServerArgs) -> socket.socket:
    """The listening socket that the arguments ask for.

    Raises:
        ConfigError: it cannot be had; names the flag.
    """
    from octavo.entrypoints.openai.door.unix_socket import claim_unix_socket

    return claim_unix_socket(args.uds) if args.uds else claim_port(args.host, args.port)


def run_server(models: Sequence[ServedModel], server_args: ServerArgs) -> int:
    """Serve one model or several until a signal comes. Returns the exit code."""
    from octavo.engine.model_facts import require_text

    for model in models:
        require_text(model.engine, "serve")
    listener = claim(server_args)
    try:
        return asyncio.run(_serve(models, server_args, listener))
    finally:
        listener.close()


async def _serve(models: Sequence[ServedModel], server_args: ServerArgs, listener: socket.socket) -> int:
    from octavo.engine.async_llm import AsyncLLM

    engines: list[AsyncLLM] = []
    try:
        for model in models:
            engines.append(AsyncLLM.from_engine_args(model.engine))
        state = make_states(engines, models, server_args)
        server = make_server(state, _api_keys(server_args))
        server.handle_signals()
        serving = asyncio.create_task(server.run([listener]))
        starting = asyncio.create_task(_wait_ready(engines))
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
        elif isinstance(starting.exception(), OctavoError):
            # The engine's client has logged why.
            server.stop(force=True)
            await serving
            return 1
        else:
            starting.result()
            _announce(state, server_args, listener)
        await serving
        return 0
    except OctavoError as error:
        logger.error("%s", error.message)
        return 1
    finally:
        await asyncio.gather(*(engine.shutdown() for engine in engines))


async def _wait_ready(engines: Sequence[AsyncLLM]) -> None:
    """Until all are; raises the first error of one that cannot start."""
    await asyncio.gather(*(engine.wait_ready() for engine in engines))


def _api_keys(args: ServerArgs) -> tuple[str, ...]:
    return tuple(args.api_key or ()) or tuple(filter(None, (environment().api_key,)))


def make_states(
    engines: Sequence[AsyncLLM], models: Sequence[ServedModel], server_args: ServerArgs
) -> ServerState:
    """The state of the first model, with those of the others in it.

    Raises:
        ConfigError: two models have the same name.
    """
    from octavo.entrypoints.openai.served_models import check_names

    check_names([name for engine in engines for name in engine.config.model.served_model_names])
    each = [replace(server_args, **model.server) for model in models]
    first = make_state(engines[0], each[0])
    pairs = zip(engines[1:], each[1:], strict=True)
    first.others = tuple(make_state(engine, args, beside=first) for engine, args in pairs)
    return first


def make_state(engine: AsyncLLM, server_args: ServerArgs, beside: ServerState | None = None) -> ServerState:
    """The parts that handlers share, over an engine that may still be starting.

    Args:
        beside: The state of the server's first model, whose stored responses, uploads and counts of calls are those of all.
    """
    from octavo.entrypoints.openai.renderer import Renderer
    from octavo.entrypoints.openai.responses.archive import make_archive
    from octavo.entrypoints.openai.state import ServerState
    from octavo.entrypoints.openai.stats import MetricsListener, metrics_of
    from octavo.metrics.http_metrics import HttpMetrics

    tokenizer = engine.tokenizer
    assert tokenizer is not None
    config = engine.config
    templates = _given_template(server_args.chat_template) or tokenizer.chat_templates
    metrics = metrics_of(config)
    engine.add_listener(MetricsListener(metrics))
    state = ServerState(
        engine,
        Renderer(tokenizer, templates, server_args, config.model.max_model_len),
        metrics,
        server_args,
        beside.responses if beside else make_archive(server_args.responses_store, server_args.store_limits),
        beside.http if beside else HttpMetrics(config.observability.metrics_prefix),
    )
    if beside is not None:
        state.uploads = beside.uploads
    return state


def _given_template(given: str | None) -> dict[str, str]:
    """`--chat-template`: a file's text, or the template itself if it holds Jinja. Empty if none was given."""
    from octavo.tokenizers.chat import check_template

    if given is None:
        return {}
    is_template = "{{" in given or "{%" in given
    try:
        source = given if is_template else Path(given).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--chat-template {given!r}: {error.strerror}.", param="chat_template") from error
    check_template(source, None if is_template else given)
    return {"default": source}


def make_server(state: ServerState, api_keys: tuple[str, ...] = ()) -> DrainingServer:
    """The HTTP server, not running yet."""
    import uvicorn

    from octavo.entrypoints.openai.app import build_app
    from octavo.entrypoints.openai.door.calls import configure_access_log
    from octavo.entrypoints.openai.door.http_protocol import bounded_protocol
    from octavo.entrypoints.openai.door.tls import tls_settings

    args = state.args
    if args.access_log != "none":
        configure_access_log()
    config = uvicorn.Config(
        build_app(state, api_keys),
        http=bounded_protocol(args.max_header_bytes),
        ws="none",
        root_path=args.root_path.rstrip("/"),
        proxy_headers=args.forwarded_allow_ips is not None,
        forwarded_allow_ips=args.forwarded_allow_ips,
        **tls_settings(args),
        log_level=state.args.uvicorn_log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(state.args.shutdown_timeout) + _LAST_WORDS_SECONDS,
        lifespan="on",
    )
    return DrainingServer(uvicorn.Server(config), state)


class DrainingServer:
    """Uvicorn with our meaning of signals: the first one drains, the second one ends at once."""

    def __init__(self, server: uvicorn.Server, state: ServerState) -> None:
        self._server = server
        self._state = state
        self._time_is_up: asyncio.TimerHandle | None = None

    def handle_signals(self) -> None:
        """Drain at SIGINT and SIGTERM. Call in the event loop's main thread."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)

    async def run(self, sockets: list[socket.socket]) -> None:
        """Serve until `stop()`, then until the running requests are through or their time is up."""
        from octavo.entrypoints.openai.door.tls import reload_certificates

        refresh = self._state.args.enable_ssl_refresh
        reloading = asyncio.create_task(reload_certificates(self._server.config)) if refresh else None
        try:
            # Uvicorn's `serve` would install signal handlers of its own around the same call.
            await self._server._serve(sockets)
        finally:
            if reloading is not None:
                reloading.cancel()
            if self._time_is_up is not None:
                self._time_is_up.cancel()
        if self._server.force_exit:
            self._state.responses.jobs.cancel()
            # Uvicorn leaves the application's own shutdown out then.
            await self._server.lifespan.shutdown()

    def stop(self, *, force: bool = False) -> None:
        """Take no new requests and end when the open ones are through, or their time is; with `force`, at once."""
        if not self._state.draining:
            for state in self._state.all:
                state.draining = True
            self._state.uploads.end()
            loop = asyncio.get_running_loop()
            self._time_is_up = loop.call_later(self._state.args.shutdown_timeout, self._end_open_requests)
        self._server.force_exit = self._server.force_exit or force
        self._server.should_exit = True

    def _end_open_requests(self) -> None:
        """Tell the clients that wait still, rather than to cut them off as uvicorn would."""
        engines = [state.engine for state in self._state.all]
        logger.warning("%d requests did not end in time.", sum(engine.num_open for engine in engines))
        for engine in engines:
            engine.fail_open(DrainingError("The server was shut down before the answer was complete."))

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._state.draining:
            logger.warning("Second %s: closing at once.", name)
        else:
            logger.info("%s: finishing the running requests; a second signal ends them.", name)
        self.stop(force=self._state.draining)


def _announce(state: ServerState, args: ServerArgs, listener: socket.socket) -> None:
    """Say where the server listens, with a command that works as it stands."""
    names = ", ".join(each.model_names[0] for each in state.all)
    if args.uds:
        print(
            f"\nOctavo serves {names} at the unix socket {args.uds}.\n",
            file=sys.stderr,
            flush=True,
        )
        return
    port = listener.getsockname()[1]
    scheme = "https" if args.ssl_keyfile else "http"
    host = "127.0.0.1" if args.host in ("0.0.0.0", "::") else args.host
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    model = state.model_names[0]
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'
    key = " -H 'Authorization: Bearer YOUR_KEY'" if _api_keys(args) or args.api_key_file else ""
    print(f"\nOctavo serves {names} at {address}. Try:\n", file=sys.stderr)
    print(
        f"  curl {address}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'\n",
        file=sys.stderr,
        flush=True,
    )
