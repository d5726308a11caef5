"""Every line of a batch file gets its record, whatever it holds and whatever the server does."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any, Literal

import httpx
import pytest

from octavo.entrypoints.batch.lines import BadLine, BatchRequest, parse_line, read_lines
from octavo.entrypoints.batch.runner import BatchRunner, Summary


def line(number: int, **fields: Any) -> bytes:
    entry = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": {"n": number}}
    return json.dumps(entry | fields).encode() + b"\n"


def run(
    data: bytes, answer: Any, order: Literal["completion", "input"] = "completion", concurrency: int = 3
) -> tuple[Summary, list[dict[str, Any]]]:
    async def go() -> Summary:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://batch") as client:
            runner = BatchRunner(client, output, concurrency=concurrency, order=order)
            return await runner.run(read_lines(io.BytesIO(data)))

    output = io.BytesIO()
    summary = asyncio.run(go())
    return summary, [json.loads(text) for text in output.getvalue().splitlines()]


@pytest.mark.parametrize("order", ["completion", "input"])
def test_every_line_has_one_record(order: Literal["completion", "input"]) -> None:
    under_way = most = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        number = json.loads(request.content)["n"]
        for _ in range((number * 7) % 5):
            await asyncio.sleep(0)
        under_way -= 1
        return httpx.Response(200, json={"number": number})

    data = b"\n".join(line(number) for number in range(50))
    summary, records = run(data, answer, order)
    ids = [record["custom_id"] for record in records]
    assert sorted(ids) == sorted(f"r{n}" for n in range(50))
    assert all(f"r{r['response']['body']['number']}" == r["custom_id"] for r in records)
    if order == "input":
        assert ids == [f"r{n}" for n in range(50)]
    assert most <= 3
    assert (summary.done, summary.failed) == (50, 0)


def test_bad_lines_and_failed_requests_are_error_records() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        number = json.loads(request.content)["n"]
        if number == 1:
            return httpx.Response(400, json={"error": {"message": "too warm"}})
        if number == 2:
            raise httpx.ConnectError("nobody there")
        return httpx.Response(200, content=b"plain")

    data = line(1) + b"{\n" + line(2) + line(3) + line(4, url="/metrics") + b"[]\n\n" + line(5, body=None)
    summary, records = run(data, answer, "input")
    errors = [record["error"]["message"] for record in records]
    assert [record["custom_id"] for record in records] == ["r1", None, "r2", "r3", "r4", None, "r5"]
    assert records[0]["response"]["status_code"] == 400
    for message, part in zip(
        errors, ("too warm", "line 2", "nobody", "not JSON", "/metrics", "line 6", "body"), strict=True
    ):
        assert part in message
    assert (summary.done, summary.failed) == (0, 7)


def test_a_busy_server_is_asked_again() -> None:
    left = {0: 2, 1: 100}

    def answer(request: httpx.Request) -> httpx.Response:
        number = json.loads(request.content)["n"]
        left[number] -= 1
        status = 200 if left[number] < 0 else 429
        return httpx.Response(status, json={}, headers={"Retry-After": "0"})

    summary, records = run(line(0) + line(1), answer, "input")
    assert [record["response"]["status_code"] for record in records] == [200, 429]
    assert (summary.done, summary.failed) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"method": "GET"}, "method"),
        ({"url": "http://elsewhere/v1/completions"}, "url"),
        ({"url": None}, "url"),
        ({"body": {"stream": True}}, "stream"),
        ({"body": {"background": True}}, "background"),
    ],
)
def test_what_a_line_may_not_ask(fields: dict[str, Any], reason: str) -> None:
    parsed = parse_line(line(7, **fields), 7)
    assert isinstance(parsed, BadLine)
    assert reason in parsed.reason
    assert parsed.custom_id == "r7"
    assert isinstance(parse_line(line(7), 7), BatchRequest)


def test_lone_surrogates_survive() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b'{"text": "\\ud800"}')

    _, records = run(line(0), answer)
    assert records[0]["response"]["body"] == {"text": "\ud800"}
