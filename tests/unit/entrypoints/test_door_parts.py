"""Parts of the door by themselves: key files, trace headers, sockets, settings that cannot work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.door.custom import add_custom_middleware
from octavo.entrypoints.openai.door.keys import KeyRing, digest_of, plain_keys, read_key_file
from octavo.entrypoints.openai.door.trace_context import origin_of, traceparent_of
from octavo.entrypoints.openai.door.unix_socket import claim_unix_socket
from octavo.lib.errors import ConfigError

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_key_file_names_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# comment\n\n ann:a:b:c \nbob:sha256:{digest_of('secret').hex().upper()}\n")
    keys = read_key_file(str(path))
    assert [key.label for key in keys] == ["ann", "bob"]
    ring = KeyRing(keys)
    ann = ring.key_of(Headers({"authorization": "Bearer a:b:c"}))
    bob = ring.key_of(Headers({"x-api-key": "secret"}))
    assert (ann, bob) == tuple(keys)
    assert ring.key_of(Headers({"authorization": "Bearer secret2"})) is None
    assert keys[0].owner != keys[1].owner
    assert keys[1].digest.hex() not in keys[1].owner


def test_an_owner_is_the_key_and_not_its_place_or_label(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("other-label:two\n")
    first = plain_keys(["one", "two"])
    assert first[1].owner == plain_keys(["two"])[0].owner == read_key_file(str(path))[0].owner


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no key"),
        ("# only\n", "no key"),
        ("ann:x\nann:y\n", "twice"),
        ("ann:x\nhunter2\n", "line 2"),
        ("a b:hunter2\n", "line 1"),
        ("ann:\n", "line 1"),
    ],
)
def test_a_bad_key_file_is_refused_without_showing_it(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        read_key_file(str(path))
    assert "hunter2" not in caught.value.message
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key_file(str(tmp_path / "none"))


def test_a_call_joins_its_clients_trace() -> None:
    origin = origin_of(f"00-{TRACE}-{SPAN}-01", "r")
    assert (origin.trace_id, origin.parent_span_id, origin.sampled) == (TRACE, SPAN, True)
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-01", traceparent_of(origin))
    assert SPAN not in traceparent_of(origin)
    later_version = origin_of(f"cc-{TRACE}-{SPAN}-00-what-comes", "r")
    assert (later_version.trace_id, later_version.sampled) == (TRACE, False)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_malformed_trace_header_starts_a_trace_of_its_own(header: str) -> None:
    origin = origin_of(header, "r")
    assert origin.trace_id != TRACE
    assert len(origin.trace_id) == 32
    assert origin.parent_span_id == ""


def test_an_orphaned_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    claim_unix_socket(path).close()  # its file stays
    with claim_unix_socket(path), pytest.raises(ConfigError, match="unix socket"):
        claim_unix_socket(path)
    plain = tmp_path / "file"
    plain.write_text("mine")
    with pytest.raises(ConfigError):
        claim_unix_socket(str(plain))
    assert plain.read_text() == "mine"


@pytest.mark.parametrize(
    "path", ["nothing", "no.such.module", "json.nothing", "json.dumps", "re.I", ".x", "x."]
)
def test_middleware_that_is_none_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(path)):
        add_custom_middleware(FastAPI(), path)


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"ssl_keyfile": "k"}, "ssl_certfile"),
        ({"ssl_certfile": "c"}, "ssl_certfile"),
        ({"ssl_cert_reqs": 3}, "ssl_cert_reqs"),
        ({"ssl_cert_reqs": 2}, "ssl_ca_certs"),
        ({"request_timeout": -1.0}, "request_timeout"),
        ({"request_timeout": float("nan")}, "request_timeout"),
        ({"max_header_bytes": 10}, "max_header_bytes"),
        ({"max_header_count": 0}, "max_header_count"),
        ({"rate_limit_requests": -1}, "rate_limit_requests"),
        ({"rate_limit_tokens": -1}, "rate_limit_tokens"),
        ({"root_path": "api"}, "root_path"),
        ({"access_log": "xml"}, "access_log"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, object], flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerArgs(**settings)  # type: ignore[arg-type]
    assert caught.value.param == flag
    assert f"--{flag.replace('_', '-')}" in caught.value.message
