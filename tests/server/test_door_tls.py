"""TLS: what may not be started with, new certificates without a restart, and heads that come slowly or too large."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import uvicorn
from tests.server.harness import running, until

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.door import tls
from octavo.entrypoints.openai.door.http_protocol import bounded_protocol
from octavo.entrypoints.openai.door.tls import tls_settings
from octavo.lib.errors import ConfigError


def write_pair(authority: trustme.CA, folder: Path) -> tuple[str, str]:
    made = authority.issue_cert("127.0.0.1")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made.private_key_pem.write_to_path(key)
    made.cert_chain_pems[0].write_to_path(certificate)
    return str(key), str(certificate)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    return context


def test_a_new_certificate_is_taken_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "RELOAD_SECONDS", 0.1)
    old, new = trustme.CA(), trustme.CA()
    key, certificate = write_pair(old, tmp_path)
    args = ServerArgs(shutdown_timeout=1, ssl_keyfile=key, ssl_certfile=certificate)

    def knows(authority: trustme.CA) -> bool:
        with httpx.Client(verify=trusting(authority)) as client:
            try:
                return client.get(f"{server.url}/version").status_code == 200
            except httpx.ConnectError:
                return False

    with running(server_args=args, wait=False) as server:
        assert knows(old)
        assert not knows(new)
        Path(certificate).write_text("half written")
        assert knows(old)
        write_pair(new, tmp_path)
        until(lambda: knows(new))
        assert not knows(old)
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https", "http") + "/version")


def test_client_certificates_can_be_asked_for(tmp_path: Path) -> None:
    authority = trustme.CA()
    key, certificate = write_pair(authority, tmp_path)
    authorities = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(authorities)
    args = ServerArgs(
        shutdown_timeout=1,
        ssl_keyfile=key,
        ssl_certfile=certificate,
        ssl_ca_certs=str(authorities),
        ssl_cert_reqs=2,
    )
    with running(server_args=args, wait=False) as server:
        context = trusting(authority)
        with pytest.raises(httpx.HTTPError), httpx.Client(verify=context) as stranger:
            stranger.get(f"{server.url}/version")
        authority.issue_cert("client").configure_cert(context)
        with httpx.Client(verify=context) as client:
            assert client.get(f"{server.url}/version").status_code == 200


def test_files_that_do_not_fit_each_other_are_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    key, certificate = write_pair(trustme.CA(), tmp_path / "a")
    other_key, _ = write_pair(trustme.CA(), tmp_path / "b")
    for changes in (
        {"ssl_keyfile": other_key},
        {"ssl_keyfile": "none"},
        {"ssl_certfile": key},
        {"ssl_ca_certs": other_key},
        {"ssl_ciphers": "rot13"},
    ):
        args = ServerArgs(**({"ssl_keyfile": key, "ssl_certfile": certificate} | changes))
        with pytest.raises(ConfigError, match="--ssl"):
            tls_settings(args)
    assert tls_settings(ServerArgs()) == {}


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def over_a_plain_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    async def go() -> None:
        protocol = bounded_protocol(500, head_seconds=0.3)
        config = uvicorn.Config(hello, port=0, http=protocol, lifespan="off", ws="none", log_level="warning")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await talk(reader, writer)
        finally:
            writer.close()
            server.should_exit = True
            await serving

    asyncio.run(asyncio.wait_for(go(), 30))


def test_a_head_that_never_ends_is_told_so() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b"hi")
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        assert b" 408 " in await reader.readline()
        assert b"did not end within" in await reader.read()

    over_a_plain_server(talk)


def test_a_head_that_is_too_large_is_told_so_also_in_small_parts() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        for _ in range(60):
            writer.write(b"y" * 10)
            await writer.drain()
        assert b" 431 " in await reader.readline()
        assert b"500 bytes" in await reader.read()

    over_a_plain_server(talk)
