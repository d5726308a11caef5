"""Responses that can be asked for again: those in the making, and those in the store."""

from __future__ import annotations

import logging
from typing import Any, cast

import msgspec

from octavo.entrypoints.openai.responses.builder import FINAL, ResponseBuilder, StreamEvent
from octavo.entrypoints.openai.responses.jobs import Job, Jobs
from octavo.entrypoints.openai.responses.store import MemoryStore, ResponseStore, StoreLimits
from octavo.lib.errors import InvalidRequestError, NotFoundError, OctavoError
from octavo.lib.origin import ORIGIN

logger = logging.getLogger(__name__)

MAX_CHAIN = 4096


class Record(msgspec.Struct):
    """What is kept of a response."""

    response: dict[str, Any]
    input_items: list[dict[str, Any]]
    events: list[dict[str, Any]] | None = None
    """Of a background response that was asked for as a stream."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class ResponseArchive:
    """Keeps, finds and forgets responses. Each caller (API key) has an archive of its own: nobody finds another's."""

    def __init__(self, store: ResponseStore) -> None:
        self.jobs = Jobs()
        self._store = store

    async def save(
        self,
        response: dict[str, Any],
        input_items: list[dict[str, Any]],
        events: list[StreamEvent] | None = None,
    ) -> None:
        """Keep a response. If the store fails, its log says so; the answer is the client's all the same."""
        record = _encoder.encode(Record(response, input_items, events))
        try:
            await self._store.put(_owned(response["id"]), record)
        except OctavoError as error:
            logger.error("Response %s is not stored: %s", response["id"], error.message)

    def new_job(
        self, builder: ResponseBuilder, input_items: list[dict[str, Any]], *, keep_events: bool
    ) -> Job:
        """A job for a response that is to be made in the background, not started yet.

        Raises:
            OverloadedError: too many are being made.
        """

        async def on_end(job: Job) -> None:
            await self.save(job.response, input_items, job.events if keep_events else None)
            self.jobs.remove(_owned(job.response["id"]))

        job = Job(builder, input_items, on_end, keeps_events=keep_events)
        self.jobs.add(_owned(builder.response["id"]), job)
        return job

    def job(self, response_id: str) -> Job | None:
        """The response in the making of that id, if it is the caller's."""
        return self.jobs.get(_owned(response_id))

    async def find(self, response_id: str) -> Record:
        """A response as it is now.

        Raises:
            NotFoundError: there is none of that id, or it was not stored, or had to go.
        """
        job = self.job(response_id)
        if job is not None:
            return Record(job.response, job.input_items)
        record = await self._store.get(_owned(response_id))
        if record is None:
            raise _not_found(response_id, "response_id")
        return _decoder.decode(record)

    async def delete(self, response_id: str) -> None:
        """Forget a response; one that is being made is cancelled first.

        Raises:
            NotFoundError: as `find`.
        """
        job = self.job(response_id)
        if job is not None:
            job.stop()
            await job.wait()
        if not await self._store.delete(_owned(response_id)):
            raise _not_found(response_id, "response_id")

    async def history(self, response_id: str) -> list[dict[str, Any]]:
        """Input and output items of a response and of all that it follows, oldest first.

        Raises:
            NotFoundError: one of them is not there (any more).
            InvalidRequestError: it is not ready, or the chain is too long.
        """
        turns: list[list[dict[str, Any]]] = []
        following: str | None = response_id
        while following is not None:
            if len(turns) == MAX_CHAIN:
                message = f"previous_response_id leads over more than {MAX_CHAIN} responses"
                raise InvalidRequestError(message, param="previous_response_id")
            record = await self._previous(following)
            turns.append(record.input_items + record.response["output"])
            following = cast("str | None", record.response["previous_response_id"])
        return [item for turn in reversed(turns) for item in turn]

    async def close(self) -> None:
        """Wait for what is being made, then close the store."""
        await self.jobs.wait()
        await self._store.close()

    async def _previous(self, response_id: str) -> Record:
        job = self.job(response_id)
        if job is not None and job.response["status"] not in FINAL:
            message = f"The response {response_id!r} is {job.response['status']}; wait until it is complete."
            raise InvalidRequestError(message, param="previous_response_id")
        record = await self._store.get(_owned(response_id))
        if record is None:
            raise _not_found(response_id, "previous_response_id")
        return _decoder.decode(record)


def make_archive(where: str, limits: StoreLimits) -> ResponseArchive:
    """An archive over a store in memory, or in the SQLite file of that path.

    Raises:
        ConfigError: the file cannot be used.
    """
    if where == "memory":
        return ResponseArchive(MemoryStore(limits))
    from octavo.entrypoints.openai.responses.sqlite_store import SqliteStore

    return ResponseArchive(SqliteStore(where, limits))


def _owned(response_id: str) -> str:
    """The key of the calling API key's response of that id. A task that a call starts belongs to it."""
    origin = ORIGIN.get()
    return f"{origin.owner if origin else ''}/{response_id}"


def _not_found(response_id: str, param: str) -> NotFoundError:
    return NotFoundError(
        f"There is no response {response_id[:64]!r}: it was never stored, was deleted, or had to make room.",
        param=param,
    )
