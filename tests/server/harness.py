"""A whole server over the fake model: real sockets, real engine process, no weights."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.engine.fakes import fake_command, fake_config, fake_tokenizer

from octavo.engine.async_llm import AsyncLLM
from octavo.engine.clients.zmq_async import AsyncZmqClient
from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.door.unix_socket import claim_unix_socket
from octavo.entrypoints.openai.server import DrainingServer, claim_port, make_server, make_state
from octavo.entrypoints.openai.state import ServerState
from octavo.tokenizers import Tokenizer


@dataclass
class Server:
    """A running server and how to reach into it."""

    url: str
    engine: AsyncLLM
    state: ServerState
    stop: Callable[[], None]
    """Begin to shut down, as at SIGTERM."""
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers=headers)

    def chat(self, text: str = "hi", **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0} | fields
        return self.post("/v1/chat/completions", body)

    def complete(self, prompt: Any = "hi", **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0} | fields)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series of `/metrics`."""
        for line in self.get("/metrics").text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] == f"octavo:{name}" and all(
                f'{k}="{v}"' in series for k, v in labels.items()
            ):
                return float(value)
        raise KeyError(name)


@contextlib.contextmanager
def running(
    *,
    script: str | Sequence[int] = "",
    tokenizer: Tokenizer | None = None,
    step_seconds: float = 0.0,
    boot_seconds: float = 0.0,
    server_args: ServerArgs | None = None,
    api_keys: tuple[str, ...] = (),
    wait: bool = True,
    **config: Any,
) -> Iterator[Server]:
    """Serve the fake model, whose answers are `script` and then letters that follow from the prompt.

    Args:
        script: Token ids, or a text in the fake tokenizer's bytes.
        tokenizer: A real vocabulary in front of it.
    """
    vocabulary = tokenizer or fake_tokenizer()
    if tokenizer is not None:
        config = {"vocab_size": tokenizer.vocab_size, "eos_token_ids": tokenizer.eos_token_ids} | config
    args = server_args or ServerArgs(shutdown_timeout=1)
    listener = claim_unix_socket(args.uds) if args.uds else claim_port("127.0.0.1", 0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[ServerState, DrainingServer, asyncio.Task[None]]:
        command = fake_command(script=script, step_seconds=step_seconds, boot_seconds=boot_seconds)
        engine = AsyncLLM(fake_config(**config), AsyncZmqClient(command), vocabulary)
        state = make_state(engine, args)
        server = make_server(state, api_keys)
        engine.start()
        serving = asyncio.ensure_future(server.run([listener]))
        if wait:
            await engine.wait_ready()
        return state, server, serving

    async def stop(state: ServerState, server: DrainingServer, serving: asyncio.Task[None]) -> None:
        server.stop(force=True)
        await serving
        await state.engine.shutdown()

    parts = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    scheme = "https" if args.ssl_certfile else "http"
    running_server = Server(
        "http://socket" if args.uds else f"{scheme}://127.0.0.1:{listener.getsockname()[1]}",
        parts[0].engine,
        parts[0],
        lambda: loop.call_soon_threadsafe(parts[1].stop) and None,
    )
    try:
        yield running_server
    finally:
        running_server.client.close()
        asyncio.run_coroutine_threadsafe(stop(*parts), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        listener.close()


def events(text: str) -> list[dict[str, Any]]:
    """The JSON events of a stream, which must end with `[DONE]`."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice of a stream, chat or completion."""
    parts = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                parts.append(choice["text"] if "text" in choice else choice["delta"].get("content") or "")
    return "".join(parts)


def both(server: Server, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole answer and the events of the stream for one body."""
    whole = server.post(path, body)
    stream = server.post(path, body | {"stream": True, "stream_options": {"include_usage": True}})
    assert whole.status_code == stream.status_code == 200, whole.text + stream.text
    return whole.json(), events(stream.text)


def finish(chunks: list[dict[str, Any]], index: int = 0) -> list[str]:
    """The finish reasons that a stream gives one choice: one, if all is well."""
    choices = (choice for chunk in chunks for choice in chunk["choices"])
    return [c["finish_reason"] for c in choices if c["index"] == index and c["finish_reason"]]


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for `condition()`; the limit is a guard against hanging, not a measure."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
