"""What stands before the handlers: keys and owners, limits, deadlines, names, logs, and errors in both shapes."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.harness import Server, events, running, until

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.door.keys import digest_of

ANN, BOB = "ann-secret", "bob-secret"
FOREVER = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}
TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


class Lines(logging.Handler):
    """What the access log says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def lines() -> Iterator[Lines]:
    handler = Lines()
    yield handler
    logging.getLogger("octavo.access").handlers.clear()


@pytest.fixture(scope="module")
def guarded(lines: Lines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two keys from a file, one of them as its digest; a line a request; narrow limits."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"# people\nann:{ANN}\n\nbob:sha256:{digest_of(BOB).hex()}\n")
    args = ServerArgs(
        shutdown_timeout=1,
        api_key_file=str(keys),
        access_log="json",
        disable_access_log_for_endpoints=("/health",),
        allowed_hosts=("127.0.0.1", "*.example.com"),
        allowed_origins=("http://page.example",),
        forwarded_allow_ips="127.0.0.1",
        max_header_count=40,
        max_header_bytes=4096,
        max_request_bytes=20_000,
        enable_server_info=True,
        enable_sleep_mode=True,
        enable_tokenizer_info_endpoint=True,
        root_path="/api",
    )
    with running(server_args=args, step_seconds=0.01) as server:
        logging.getLogger("octavo.access").addHandler(lines)
        server.client.headers["Authorization"] = f"Bearer {ANN}"
        yield server


def as_bob() -> dict[str, str]:
    return {"Authorization": f"Bearer {BOB}"}


def test_a_key_is_asked_for_on_every_route_in_both_spellings(guarded: Server) -> None:
    nobody = {"Authorization": ""}
    paths = guarded.get("/openapi.json").json()["paths"]
    assert {"/sleep", "/tokenizer_info", "/server_info", "/pooling", "/v1/responses/{response_id}"} <= set(
        paths
    )
    guards = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    guards += [
        ("GET", "/docs"),
        ("GET", "/redoc"),
        ("GET", "/openapi.json"),
        ("GET", "/nothing"),
        ("PUT", "/v1/models"),
    ]
    for method, path in guards:
        expected = 200 if path in ("/health", "/ready", "/ping") else 401
        assert guarded.client.request(method, path, headers=nobody).status_code == expected, (method, path)
    for path in ("/health", "/ready", "/ping", "/"):
        assert guarded.get(path, **nobody).status_code == 200, path
    assert guarded.get("/version", **as_bob()).status_code == 200
    assert guarded.get("/version", **nobody, **{"x-api-key": BOB}).status_code == 200
    for wrong in ("", BOB[:-1], BOB + "x", digest_of(BOB).hex(), "\xff\xfe"):
        assert (
            guarded.client.get(
                "/version", headers=[(b"x-api-key", wrong.encode("latin-1")), (b"authorization", b"")]
            ).status_code
            == 401
        )
    assert guarded.get("/version", Authorization=f"Basic {BOB}").status_code == 401


def test_a_prefix_that_a_proxy_strips_changes_nothing_of_that(guarded: Server) -> None:
    assert guarded.get("/health", Authorization="").status_code == 200
    assert guarded.get("/version", Authorization="").status_code == 401
    for path in ("/api/health", "/apihealth", "/v1/x/health", "/health/../version"):
        assert guarded.get(path, Authorization="").status_code == 401, path
    assert guarded.get("/openapi.json").json()["servers"] == [{"url": "/api"}]


def test_a_line_a_request_without_prompt_or_key(guarded: Server, lines: Lines) -> None:
    lines.lines.clear()
    secret = "the-prompt-nobody-may-read"
    headers = {"X-Request-Id": "mine-1", "traceparent": TRACE, "X-Forwarded-For": "203.0.113.9", **as_bob()}
    answer = guarded.post(f"/v1/completions?q={secret}", {"prompt": secret, "max_tokens": 2}, **headers)
    guarded.get("/health")
    guarded.get("/version", Authorization="Bearer wrong-key")
    # A line comes when its answer is out, so that of an earlier test's last request may still come.
    until(lambda: any('"mine-1"' in line for line in lines.lines) and "/version" in lines.lines[-1])
    assert not any(word in line for line in lines.lines for word in (secret, BOB, "wrong-key", "/health"))
    (line,) = [json.loads(line) for line in lines.lines if '"mine-1"' in line]
    assert line | {"time": "", "duration_ms": 0} == {
        "time": "",
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "duration_ms": 0,
        "client": "203.0.113.9",
        "caller": "bob",
        "request_id": "mine-1",
        "trace_id": "ab" * 16,
    }
    assert json.loads(lines.lines[-1]) | {"time": ""} == json.loads(lines.lines[-1]) | {
        "caller": "anonymous",
        "status": 401,
        "time": "",
    }
    assert answer.headers["traceparent"].startswith("00-" + "ab" * 16)
    assert answer.headers["traceparent"] != TRACE


def test_only_this_servers_own_names_are_answered(guarded: Server) -> None:
    assert guarded.get("/version", Host="a.example.com:80").status_code == 200
    for host in ("evil.com", "example.com.evil.com", "xexample.com", ""):
        answer = guarded.get("/version", Host=host)
        assert answer.status_code == 400, host
        assert answer.json()["error"]["param"] == "host"


def test_only_named_origins_may_call_from_a_browser(guarded: Server) -> None:
    def allowed(origin: str) -> str | None:
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST", "Authorization": ""}
        return guarded.client.options("/v1/models", headers=headers).headers.get(
            "access-control-allow-origin"
        )

    assert allowed("http://page.example") == "http://page.example"
    assert allowed("http://other.example") is None


def test_heads_are_bounded_in_number_and_bytes(guarded: Server) -> None:
    many = guarded.client.get("/version", headers=[(f"x-{i}", "1") for i in range(50)])
    large = guarded.get("/version", **{"x-large": "y" * 5000})
    query = guarded.get("/version?" + "z" * 5000)
    for answer, limit in ((many, "40"), (large, "4096"), (query, "4096")):
        assert answer.status_code == 431
        assert limit in answer.json()["error"]["message"]
        assert answer.json()["error"]["param"] == "headers"


def test_a_head_without_end_is_cut_off(guarded: Server) -> None:
    port = int(guarded.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\nx-a: ")
        received = b""
        try:
            for _ in range(100):
                client.sendall(b"a" * 1000)
        except OSError:
            pass
        try:
            while part := client.recv(4096):
                received += part
        except ConnectionResetError:
            pass
    assert received == b"" or b" 431 " in received.splitlines()[0]
    assert guarded.get("/version").status_code == 200


@pytest.mark.parametrize(
    ("status", "kind", "headers", "body"),
    [
        (401, "authentication_error", {"Authorization": ""}, {}),
        (400, "invalid_request_error", {"Host": "evil.com"}, {}),
        (431, "invalid_request_error", {"x-large": "y" * 5000}, {}),
        (413, "request_too_large", {}, {"model": "m", "x": "y" * 30_000}),
        (400, "invalid_request_error", {"X-Request-Timeout": "soon"}, {}),
        (400, "invalid_request_error", {}, {"max_tokens": 0}),
        (
            504,
            "timeout_error",
            {"X-Request-Timeout": "0.3"},
            {"max_tokens": 400, "messages": [{"role": "user", "content": "x"}]},
        ),
    ],
)
def test_errors_have_the_shape_of_their_route(
    guarded: Server, status: int, kind: str, headers: dict[str, str], body: dict[str, Any]
) -> None:
    model = {"model": guarded.state.model_names[0]}
    answer = guarded.post("/v1/messages", model | body, **headers)
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == kind
    answer = guarded.post("/v1/chat/completions", model | {"ignore_eos": True} | body, **headers)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_settings_are_shown_without_secrets(guarded: Server) -> None:
    answer = guarded.get("/server_info")
    assert answer.json()["server"]["max_header_count"] == 40
    assert ANN not in answer.text
    assert not {"api_key", "api_key_file", "ssl_keyfile"} & set(answer.json()["server"])
    assert guarded.get("/load").json() == {"server_load": 0}


def test_http_requests_are_counted_by_route_not_by_path(guarded: Server) -> None:
    guarded.get("/v1/models/nothing-of-that-name")
    guarded.get("/made/up/by/a/client")
    text = guarded.get("/metrics").text
    assert 'http_requests_total{handler="/v1/models/{name:path}",method="GET",status="4xx"}' in text
    assert 'http_requests_total{handler="none",method="GET",status="4xx"}' in text
    assert "made/up" not in text
    assert "octavo:http_requests_open 1.0" in text


def test_a_response_is_its_keys_own(guarded: Server) -> None:
    mine = guarded.post("/v1/responses", {"input": "hi", "max_output_tokens": 2}).json()["id"]
    assert guarded.get(f"/v1/responses/{mine}").status_code == 200
    for path in (mine, f"{mine}/input_items"):
        assert guarded.get(f"/v1/responses/{path}", **as_bob()).status_code == 404
    assert guarded.post(f"/v1/responses/{mine}/cancel", {}, **as_bob()).status_code == 404
    assert guarded.client.delete(f"/v1/responses/{mine}", headers=as_bob()).status_code == 404
    body = {"input": "and?", "previous_response_id": mine, "max_output_tokens": 2}
    for asked in (mine, f"/{mine}", f"../{mine}"):
        assert (
            guarded.post("/v1/responses", body | {"previous_response_id": asked}, **as_bob()).status_code
            == 404
        )
    assert guarded.post("/v1/responses", body).status_code == 200
    assert guarded.client.delete(f"/v1/responses/{mine}").status_code == 200


def test_a_background_response_is_its_keys_own(guarded: Server) -> None:
    body = {"input": "hi", "background": True, "max_output_tokens": 300, "ignore_eos": True}
    mine = guarded.post("/v1/responses", body).json()["id"]
    assert guarded.get(f"/v1/responses/{mine}", **as_bob()).status_code == 404
    assert guarded.post(f"/v1/responses/{mine}/cancel", {}, **as_bob()).status_code == 404
    assert guarded.get(f"/v1/responses/{mine}").json()["status"] in ("queued", "in_progress")
    assert guarded.post(f"/v1/responses/{mine}/cancel", {}).json()["status"] == "cancelled"
    assert guarded.get(f"/v1/responses/{mine}").json()["status"] == "cancelled"
    assert guarded.get(f"/v1/responses/{mine}", **as_bob()).status_code == 404


def test_past_its_deadline_a_request_ends_in_its_own_shape_and_in_the_engine(guarded: Server) -> None:
    late = {"X-Request-Timeout": "0.3"}
    whole = guarded.post("/v1/completions", FOREVER, **late)
    assert whole.status_code == 504
    assert whole.json()["error"]["type"] == "timeout_error"
    stream = guarded.post("/v1/completions", FOREVER | {"stream": True}, **late)
    assert stream.status_code == 200
    assert events(stream.text)[-1]["error"]["code"] == 504
    message = {
        "model": guarded.state.model_names[0],
        "max_tokens": 400,
        "stream": True,
        "messages": [{"role": "user", "content": "x"}],
    }
    assert (
        '"timeout_error"' in guarded.post("/v1/messages", message, **late).text.rpartition("event: error")[2]
    )
    response = guarded.post(
        "/v1/responses", {"input": "x", "stream": True, "max_output_tokens": 400, "ignore_eos": True}, **late
    )
    assert "event: response.failed" in response.text
    until(lambda: guarded.metric("num_requests_running") == 0 and guarded.metric("kv_cache_usage_perc") == 0)
    assert (
        guarded.post(
            "/v1/completions", FOREVER | {"max_tokens": 2}, **{"X-Request-Timeout": "60"}
        ).status_code
        == 200
    )
    for wrong in ("0", "-1", "nan", "inf", "1e999", "soon"):
        answer = guarded.post("/v1/completions", FOREVER, **{"X-Request-Timeout": wrong})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "x-request-timeout"


def test_a_keys_minute_is_its_own() -> None:
    pytest.importorskip("limits")
    args = ServerArgs(shutdown_timeout=1, rate_limit_requests=3, rate_limit_tokens=30)
    with running(server_args=args, api_keys=("one", "two", "three")) as server:
        server.client.headers["Authorization"] = "Bearer one"
        body = {"prompt": "x", "max_tokens": 2, "ignore_eos": True}
        left = [
            server.post("/v1/completions", body).headers["x-ratelimit-remaining-requests"] for _ in range(3)
        ]
        assert left == ["2", "1", "0"]
        refused = server.post("/v1/completions", body)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "3 requests a minute" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-limit-tokens"] == "30"
        assert server.get("/v1/models").status_code == 200  # looking costs nothing
        anthropic = server.post("/v1/messages", {})
        assert anthropic.status_code == 429
        assert anthropic.json()["error"]["type"] == "rate_limit_error"
        assert "retry-after" in anthropic.headers
        two = {"Authorization": "Bearer two"}
        assert server.post("/v1/completions", body | {"max_tokens": 40}, **two).status_code == 200
        until(lambda: server.metric("num_requests_running") == 0)
        spent = server.post("/v1/completions", body, **two)
        assert spent.status_code == 429
        assert "30 tokens a minute" in spent.json()["error"]["message"]
        assert server.post("/v1/completions", body, Authorization="Bearer three").status_code == 200


def test_a_queue_full_of_tokens_answers_429() -> None:
    async def flood(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            body = {"prompt": "x" * 50, "max_tokens": 20, "ignore_eos": True}
            answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(20)))
        return [answer.status_code for answer in answers]

    with running(step_seconds=0.02, max_num_seqs=2, max_num_queued_tokens=120) as server:
        statuses = asyncio.run(flood(server.url))
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 3
        never = server.complete("x" * 50, n=4)
        assert never.status_code == 400
        assert "120" in never.json()["error"]["message"]
        assert (
            server.complete("x" * 200, max_tokens=1).status_code == 200
        )  # alone it may wait, however long it is


def test_a_unix_socket_serves(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    transport = httpx.HTTPTransport(uds=path)
    with (
        running(server_args=ServerArgs(shutdown_timeout=1, uds=path), wait=False),
        httpx.Client(transport=transport, base_url="http://x") as client,
    ):
        assert client.get("/version").status_code == 200


class Marks:
    """Middleware of an operator's own, as a class."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-marked", threading.current_thread().name.encode()))
            await send(message)

        await self._app(scope, receive, marked)


async def teapot(request: Any, call_next: Any) -> Any:
    """And as a function."""
    if "tea" in request.headers:
        from starlette.responses import Response

        return Response(status_code=418)
    return await call_next(request)


def test_middleware_of_ones_own() -> None:
    module = __name__
    args = ServerArgs(shutdown_timeout=1, middleware=(f"{module}.Marks", f"{module}.teapot"))
    with running(server_args=args) as server:
        assert server.get("/version", tea="1").status_code == 418
        assert "x-marked" in server.get("/version").headers
        assert len(events(server.complete("x", max_tokens=3, stream=True).text)) >= 1
