"""Keys, ids, limits, probes, hang-ups and ends (cases A21, A96, A100, A102)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from tests.server.harness import Server, running, until

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.server import claim_port
from octavo.lib.errors import ConfigError


def test_keys_guard_every_route_but_the_probes() -> None:
    with running(api_keys=("one", "two")) as server:
        for path in ("/v1/models", "/metrics", "/version", "/docs", "/nothing"):
            assert server.get(path).status_code == 401, path
        assert server.chat().status_code == 401
        assert server.get("/v1/models", Authorization="Bearer three").status_code == 401
        assert server.get("/v1/models", Authorization="Bearer one").status_code == 200
        assert server.get("/v1/models", Authorization="bearer two").status_code == 200
        assert server.get("/health").status_code == server.get("/ready").status_code == 200
        body = server.get("/v1/models").json()
        assert body["error"]["code"] == 401


def test_request_ids_are_echoed_or_made(server: Server) -> None:
    assert server.get("/version", **{"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert len(server.get("/version").headers["x-request-id"]) >= 16
    assert "\n" not in server.get("/version", **{"X-Request-Id": "a b"}).headers["x-request-id"]
    answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, **{"X-Request-Id": "mine"})
    assert answer.json()["id"] == "cmpl-mine"


def test_one_client_id_twice_at_once_is_no_clash(server: Server) -> None:
    async def twice() -> list[int]:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            body = {"prompt": "x", "max_tokens": 40, "request_id": "same"}
            answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(4)))
        return [answer.status_code for answer in answers]

    assert asyncio.run(twice()) == [200] * 4


def test_cors(server: Server) -> None:
    headers = {"Origin": "http://page", "Access-Control-Request-Method": "POST"}
    answer = server.client.options("/v1/chat/completions", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] in ("*", "http://page")


def test_bodies_over_the_limit_are_refused() -> None:
    with running(server_args=ServerArgs(max_request_bytes=1000)) as server:
        assert server.complete("x" * 2000).status_code == 413
        chunks = (b"x" * 100 for _ in range(20))
        assert server.client.post("/v1/completions", content=chunks).status_code == 413
        assert server.complete("x", max_tokens=1).status_code == 200


def test_not_ready_while_the_engine_starts() -> None:
    with running(boot_seconds=1.5, wait=False) as server:
        assert server.get("/ready").status_code == 503
        assert server.chat().status_code == 503
        assert server.get("/version").status_code == 200
        until(lambda: server.get("/ready").status_code == 200)
        assert server.chat(max_tokens=1).status_code == 200


def test_a_full_queue_answers_429_with_retry_after() -> None:
    async def flood(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            body = {"prompt": "x", "max_tokens": 30}
            return await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(20)))

    with running(step_seconds=0.02, max_num_seqs=2, max_num_queued_reqs=3) as server:
        answers = asyncio.run(flood(server.url))
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 3
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "overloaded_error"


def hang_up_after(seconds: float, url: str, body: dict[str, object]) -> None:
    """Post, read what comes for a while, and close the connection."""
    with (
        contextlib.suppress(httpx.TimeoutException),
        httpx.stream("POST", url, json=body, timeout=seconds) as answer,
    ):
        start = time.monotonic()
        for _ in answer.iter_bytes():
            if time.monotonic() - start > seconds:
                return


@pytest.mark.parametrize("stream", [False, True])
def test_a21_a_client_that_hangs_up_frees_its_request(stream: bool) -> None:
    with running(step_seconds=0.01) as server:
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": stream}
        hang_up_after(0.5, f"{server.url}/v1/completions", body)
        until(
            lambda: server.metric("num_requests_running") == 0 and server.metric("kv_cache_usage_perc") == 0
        )
        before = server.metric("generation_tokens_total")
        time.sleep(0.3)
        assert server.metric("generation_tokens_total") == before
        assert server.metric("request_success_total", finished_reason="abort") == 1


def test_a96_counters_never_fall_and_sum_to_the_usage_of_all_answers() -> None:
    with running(num_blocks=24, max_num_seqs=8, step_seconds=0.002) as server, scraping(server) as scrapes:
        for stream in (False, True):
            body = {"prompt": "gone", "max_tokens": 350, "n": 2, "ignore_eos": True, "stream": stream}
            hang_up_after(0.1, f"{server.url}/v1/completions", body)
        until(lambda: server.metric("request_success_total", finished_reason="abort") == 4)
        before = {name: server.metric(name) for name in ("prompt_tokens_total", "generation_tokens_total")}
        answers = asyncio.run(_mixed_load(server.url))
        assert [answer.status_code for answer in answers] == [200] * len(answers)
        usages = [answer.json()["usage"] for answer in answers]
        for name, field in (("prompt", "prompt_tokens"), ("generation", "completion_tokens")):
            grown = server.metric(f"{name}_tokens_total") - before[f"{name}_tokens_total"]
            assert grown == sum(usage[field] for usage in usages)
        assert server.metric("num_preemptions_total") > 0
        assert server.metric("num_requests_running") == 0
    assert len(scrapes[-1]) > 50
    for earlier, later in itertools.pairwise(scrapes):
        assert not {name for name, value in earlier.items() if later.get(name, -1.0) < value}


@contextlib.contextmanager
def scraping(server: Server) -> Iterator[list[dict[str, float]]]:
    """Reads the counters again and again meanwhile."""
    scrapes: list[dict[str, float]] = []
    done = threading.Event()

    def scrape() -> None:
        with httpx.Client(base_url=server.url) as client:
            while not done.wait(0.02):
                scrapes.append(_counters(client.get("/metrics").text))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        yield scrapes
    finally:
        done.set()
        scraper.join()


async def _mixed_load(url: str) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        bodies = [{"prompt": f"{i} {'x' * (i * 5)}", "max_tokens": 40, "n": 1 + i % 3} for i in range(16)]
        return await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))


def _counters(text: str) -> dict[str, float]:
    """Every series of the engine that only ever grows."""
    series = [line.rpartition(" ") for line in text.splitlines() if line.startswith("octavo:")]
    grows = ("_total", "_count", "_sum", "_bucket")
    return {name: float(value) for name, _, value in series if name.split("{")[0].endswith(grows)}


def test_a100_a_taken_port_is_told_before_anything_loads() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            claim_port("127.0.0.1", port)
        command = [sys.executable, "-m", "octavo.entrypoints.cli.main", "serve", "--port", str(port)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert answer.returncode == 1
    assert str(port) in answer.stderr
    assert "Memory of" not in answer.stderr


@pytest.mark.parametrize(
    ("host", "port", "flag"),
    [("127.0.0.1", 65536, "--port"), ("127.0.0.1", -1, "--port"), ("192.0.2.1", 0, "--host")],
)
def test_an_address_that_cannot_be_had_names_the_flag_to_change(host: str, port: int, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        claim_port(host, port)


def test_an_engine_that_cannot_start_ends_the_server_with_its_reason_alone() -> None:
    command = [
        sys.executable,
        "-m",
        "octavo.entrypoints.cli.main",
        "serve",
        "--port",
        "0",
        "--threads",
        "1000000",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 1
    assert answer.stderr.count("1000000") == 1
    assert "Traceback" not in answer.stderr


def test_the_schema_of_the_api_has_no_clashes(server: Server) -> None:
    operations = [
        operation["operationId"]
        for path in server.get("/openapi.json").json()["paths"].values()
        for operation in path.values()
    ]
    assert len(set(operations)) == len(operations) > 8
    assert server.post("/ping", {}).status_code == server.get("/ping").status_code == 200


def test_a102_a_killed_engine_ends_all_requests_and_comes_back() -> None:
    with running(step_seconds=0.02, boot_seconds=1.5) as server:
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}
        results: dict[str, httpx.Response] = {}

        def ask(name: str, stream: bool) -> None:
            results[name] = httpx.post(
                f"{server.url}/v1/completions", json=body | {"stream": stream}, timeout=60
            )

        threads = [
            threading.Thread(target=ask, args=("stream", True)),
            threading.Thread(target=ask, args=("whole", False)),
        ]
        for thread in threads:
            thread.start()
        until(lambda: server.metric("num_requests_running") == 2)
        old = server.engine.engine_pid
        assert server.get("/health").status_code == 200
        os.kill(old, signal.SIGKILL)
        until(lambda: server.get("/health").status_code == 503)
        for thread in threads:
            thread.join(20)
        assert server.metric("num_requests_running") == 0
        assert results["whole"].status_code == 503
        assert '"error"' in results["stream"].text
        assert results["stream"].text.endswith("data: [DONE]\n\n")
        until(lambda: server.get("/ready").status_code == 200)
        assert server.get("/health").status_code == 200
        assert server.engine.engine_pid != old
        assert server.complete("x", max_tokens=2).status_code == 200


def test_drain_finishes_what_runs_and_refuses_what_comes() -> None:
    with running(step_seconds=0.01) as server:
        answers: list[httpx.Response] = []
        body = {"prompt": "x", "max_tokens": 60, "ignore_eos": True}
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{server.url}/v1/completions", json=body, timeout=60))
        )
        thread.start()
        until(lambda: server.metric("num_requests_running") == 1)
        server.state.draining = True
        assert server.get("/ready").status_code == 503
        assert server.get("/health").status_code == 200
        assert server.complete("x").status_code == 503
        thread.join(30)
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 60


def half_request(server: Server) -> socket.socket:
    """A connection whose request stops in the middle of its body."""
    connection = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    return connection


def test_a_body_that_stops_is_given_up() -> None:
    with running() as server:
        server.state.uploads._idle_seconds = 0.05
        with half_request(server) as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert server.complete("x", max_tokens=1).status_code == 200


def test_a_server_that_ends_does_not_wait_for_half_a_body(caplog: pytest.LogCaptureFixture) -> None:
    with running(server_args=ServerArgs(shutdown_timeout=600)) as server:
        connections = [half_request(server) for _ in range(5)]
        until(lambda: len(server.state.uploads._deadlines) == 5)
        server.stop()
        for connection in connections:
            with connection:
                assert connection.recv(4096).startswith(b"HTTP/1.1 503 ")
    assert "Traceback" not in caplog.text


def test_streams_whose_time_is_up_end_with_an_error() -> None:
    with running(step_seconds=0.05, server_args=ServerArgs(shutdown_timeout=0.3)) as server:
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.stop()
            rest = [line for line in lines if line]
    assert "was shut down before" in rest[-2]
    assert rest[-1] == "data: [DONE]"


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_told(port: int) -> None:
    with pytest.raises(ConfigError, match=f"between 0 and 65535, got {port}"):
        claim_port("127.0.0.1", port)


def test_standard_streams_that_are_closed_do_no_harm() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from octavo.entrypoints.cli.main import main; main(['--version'])",
    ]
    closed = [
        f'exec {" ".join(command[:2])} "{command[2]}" {ends}'
        for ends in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
    ]
    assert [subprocess.run(["sh", "-c", line], timeout=60).returncode for line in closed] == [0] * 4


def test_a_full_disk_behind_stdout_is_an_error_in_one_line() -> None:
    code = "import sys; from octavo.entrypoints.cli import models; from octavo.entrypoints.cli.main import main\n"
    code += "def full(args): raise OSError(28, 'No space left on device')\n"
    code += "models.run = full; sys.exit(main(['models']))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stderr) == (1, "octavo: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(
    "wrong", [{"shutdown_timeout": value} for value in (-1.0, float("nan"), 1e9)] + [{"max_request_bytes": 0}]
)
def test_server_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerArgs(**wrong)  # type: ignore[arg-type]
    assert caught.value.param == next(iter(wrong))
