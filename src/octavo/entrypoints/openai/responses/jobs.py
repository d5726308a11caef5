"""Responses that are made in the background: they go on without their client, who may follow, fetch or cancel them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from octavo.entrypoints.openai.errors import shown
from octavo.entrypoints.openai.handlers.turns import Piece
from octavo.entrypoints.openai.responses.builder import ResponseBuilder, StreamEvent
from octavo.lib.errors import OverloadedError

MAX_JOBS = 1024

JobEnd = Callable[["Job"], Awaitable[None]]


class Job:
    """One response in the making, with all events so far.

    Args:
        keeps_events: Whether it may be followed.
        on_end: Awaited when the response is final, before those who wait are told.
    """

    def __init__(
        self,
        builder: ResponseBuilder,
        input_items: list[dict[str, Any]],
        on_end: JobEnd,
        *,
        keeps_events: bool,
    ) -> None:
        self.input_items = input_items
        self.keeps_events = keeps_events
        self.events: list[StreamEvent] = builder.created()
        self._builder = builder
        self._on_end = on_end
        self._news = asyncio.Event()
        self._ended = False
        self._answering: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def response(self) -> dict[str, Any]:
        return self._builder.response

    def start(self, pieces: AsyncGenerator[Piece]) -> None:
        """Run it. Call once."""
        self._answering = asyncio.create_task(self._answer(pieces))
        self._task = asyncio.create_task(self._run(self._answering))

    def stop(self) -> None:
        """End it soon."""
        if self._answering is not None:
            self._answering.cancel()

    async def wait(self) -> None:
        """Return when it is final."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def follow(self, starting_after: int = -1) -> AsyncIterator[StreamEvent]:
        """The events after a sequence number, those that are still to come too."""
        at = starting_after + 1
        while True:
            news = self._news
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self._ended:
                return
            await news.wait()

    async def _run(self, answering: asyncio.Task[None]) -> None:
        try:
            await answering
        except asyncio.CancelledError:
            self._publish(self._builder.cancelled())
        except Exception as error:
            self._publish(self._builder.failed(shown(error)))
        await self._on_end(self)
        self._ended = True
        self._publish([])

    async def _answer(self, pieces: AsyncGenerator[Piece]) -> None:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if self.response["status"] == "queued":
                    self._publish(self._builder.in_progress())
                self._publish(self._builder.add(piece))

    def _publish(self, events: list[StreamEvent]) -> None:
        self.events.extend(events)
        news, self._news = self._news, asyncio.Event()
        news.set()


class Jobs:
    """Those that run now, by the id of their response."""

    def __init__(self) -> None:
        self._running: dict[str, Job] = {}

    def get(self, response_id: str) -> Job | None:
        return self._running.get(response_id)

    def add(self, response_id: str, job: Job) -> None:
        """Keep a job for as long as it runs.

        Raises:
            OverloadedError: too many run.
        """
        if len(self._running) >= MAX_JOBS:
            raise OverloadedError(f"{MAX_JOBS} background responses are being made; try again later.")
        self._running[response_id] = job

    def remove(self, response_id: str) -> None:
        self._running.pop(response_id, None)

    def cancel(self) -> None:
        """End all of them now; does not wait."""
        for job in self._running.values():
            job.stop()

    async def wait(self) -> None:
        """Return when none runs any more."""
        await asyncio.gather(*(job.wait() for job in list(self._running.values())))
