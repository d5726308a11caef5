"""Sends the lines of a batch file to a server, in this process or elsewhere, and writes one record a line."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import httpx

from octavo.entrypoints.batch.lines import (
    BadLine,
    BatchRequest,
    Line,
    answer_record,
    bad_line_record,
    error_record,
)

Order = Literal["completion", "input"]

# Statuses after which the same request may go through.
_BUSY = frozenset({429, 503})
_ATTEMPTS = 8
_LONGEST_WAIT = 30.0
# With records in input order, how many times the concurrency may be ahead of the oldest that is not done.
_LOOKAHEAD = 4


@dataclass
class Summary:
    """How a batch went."""

    done: int = 0
    failed: int = 0


class BatchRunner:
    """Runs one file.

    Args:
        client: With the server's base URL.
        output: Written a whole line at a time.
        concurrency: Requests under way at most.
        order: `completion` writes each record when it is there; `input` in the order of the lines.
        on_record: Told about each record that was written.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        output: BinaryIO,
        *,
        concurrency: int,
        order: Order = "completion",
        on_record: Callable[[Summary], None] = lambda _: None,
    ) -> None:
        self.summary = Summary()
        self._client = client
        self._output = output
        self._slots = asyncio.Semaphore(concurrency)
        self._ahead = concurrency * (_LOOKAHEAD if order == "input" else 1)
        self._order = order
        self._on_record = on_record
        self._tasks: deque[asyncio.Task[dict[str, Any]]] = deque()

    async def run(self, lines: Iterable[Line]) -> Summary:
        """Answer all lines."""
        try:
            for line in lines:
                self._tasks.append(asyncio.create_task(self._record(line)))
                while len(self._tasks) >= self._ahead:
                    await self._write_some()
            while self._tasks:
                await self._write_some()
        finally:
            for task in self._tasks:
                task.cancel()
        return self.summary

    async def _write_some(self) -> None:
        """Wait for a record that may be written, and write it with all others that may."""
        if self._order == "input":
            self._write(await self._tasks.popleft())
            return
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        done = [task for task in self._tasks if task.done()]
        self._tasks = deque(task for task in self._tasks if not task.done())
        for task in done:
            self._write(task.result())

    def _write(self, record: dict[str, Any]) -> None:
        self._output.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._output.flush()
        if record["error"] is None:
            self.summary.done += 1
        else:
            self.summary.failed += 1
        self._on_record(self.summary)

    async def _record(self, line: Line) -> dict[str, Any]:
        if isinstance(line, BadLine):
            return bad_line_record(line)
        async with self._slots:
            try:
                return await self._answer(line)
            except httpx.HTTPError as error:
                return error_record(line.custom_id, "connection_error", f"{type(error).__name__}: {error}")

    async def _answer(self, request: BatchRequest) -> dict[str, Any]:
        for attempt in range(_ATTEMPTS):
            answer = await self._client.post(request.url, json=request.body)
            if answer.status_code not in _BUSY or attempt == _ATTEMPTS - 1:
                break
            await asyncio.sleep(_wait_seconds(answer, attempt))
        try:
            body = answer.json()
        except ValueError:
            return error_record(request.custom_id, "invalid_answer", "The server's answer is not JSON.")
        return answer_record(request, answer.status_code, answer.headers.get("x-request-id"), body)


def _wait_seconds(answer: httpx.Response, attempt: int) -> float:
    """As long as the server asks for, else longer from time to time."""
    try:
        asked = float(answer.headers.get("retry-after", ""))
    except ValueError:
        asked = 2.0**attempt
    return min(max(asked, 0.0), _LONGEST_WAIT)
