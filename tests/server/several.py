"""A server over several fake models: one engine process each, in front of them one application."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tests.engine.fakes import fake_command, fake_config, fake_tokenizer
from tests.server.harness import Server

from octavo.config.env import Environment
from octavo.engine.args import EngineArgs
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.clients.zmq_async import AsyncZmqClient
from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.served_models import ServedModel
from octavo.entrypoints.openai.server import claim_port, make_server, make_states


@contextlib.contextmanager
def running_several(
    models: Sequence[dict[str, Any]],
    *,
    restarts: int = 3,
    api_keys: tuple[str, ...] = (),
    server_args: ServerArgs | None = None,
    **command: Any,
) -> Iterator[Server]:
    """Serve models whose configurations are `fake_config(**entry)`."""
    listener = claim_port("127.0.0.1", 0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    env = Environment(engine_max_restarts=restarts)

    async def start() -> Any:
        engines = [
            AsyncLLM(fake_config(**entry), AsyncZmqClient(fake_command(**command), env), fake_tokenizer())
            for entry in models
        ]
        args = server_args or ServerArgs(shutdown_timeout=1, enable_sleep_mode=True)
        state = make_states(engines, [ServedModel(EngineArgs()) for _ in engines], args)
        server = make_server(state, api_keys)
        serving = asyncio.ensure_future(server.run([listener]))
        await asyncio.gather(*(engine.wait_ready() for engine in engines))
        return state, server, serving

    async def stop() -> None:
        server.stop(force=True)
        await serving
        await asyncio.gather(*(each.engine.shutdown() for each in state.all))

    state, server, serving = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    running = Server(
        f"http://127.0.0.1:{listener.getsockname()[1]}",
        state.engine,
        state,
        lambda: loop.call_soon_threadsafe(server.stop) and None,
    )
    try:
        yield running
    finally:
        running.client.close()
        asyncio.run_coroutine_threadsafe(stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        listener.close()
