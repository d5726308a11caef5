"""Responses in an SQLite file, so that they outlive the server. One thread of its own does all of the work."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from octavo.entrypoints.openai.responses.store import StoreLimits
from octavo.lib.errors import ConfigError, OctavoError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BUSY_SECONDS = 10.0
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, used REAL NOT NULL, record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS responses_by_use ON responses (used, length(record), id);
"""
# Of all records, newest use first, those after which the count or the sum of bytes is over its limit.
_SURPLUS = """
DELETE FROM responses WHERE id IN (
  SELECT id FROM (
    SELECT id, row_number() OVER newest AS place, sum(length(record)) OVER newest AS bytes
    FROM responses WINDOW newest AS (ORDER BY used DESC, id ROWS UNBOUNDED PRECEDING)
  ) WHERE place > ? OR bytes > ?
)
"""


class SqliteStore:
    """A `ResponseStore` in a file, which several servers may share.

    Args:
        path: Made if it is not there; its folder must be.
        clock: Unix seconds.

    Raises:
        ConfigError: the file cannot be opened, or is something else.
    """

    def __init__(self, path: str, limits: StoreLimits, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="responses-store")
        try:
            self._connection = self._thread.submit(_opened, path).result()
        except sqlite3.Error as error:
            self._thread.shutdown()
            message = f"--responses-store {Path(path).name!r} cannot be used: {error}."
            raise ConfigError(message, param="responses_store") from error

    async def get(self, response_id: str) -> bytes | None:
        """See `ResponseStore.get`."""
        return await self._run(lambda: self._get(response_id))

    async def put(self, response_id: str, record: bytes) -> None:
        """See `ResponseStore.put`."""
        await self._run(lambda: self._put(response_id, record))

    async def delete(self, response_id: str) -> bool:
        """See `ResponseStore.delete`."""
        return await self._run(lambda: self._delete(response_id))

    async def close(self) -> None:
        """See `ResponseStore.close`."""
        await self._run(self._connection.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            logger.error("The response store failed: %s", error)
            raise OctavoError("The response store failed; the server's log has the cause.") from error

    def _get(self, response_id: str) -> bytes | None:
        with self._connection as db:
            self._forget_old(db)
            row = db.execute("SELECT record FROM responses WHERE id = ?", (response_id,)).fetchone()
            if row is None:
                return None
            db.execute("UPDATE responses SET used = ? WHERE id = ?", (self._clock(), response_id))
            return bytes(row[0])

    def _put(self, response_id: str, record: bytes) -> None:
        limits = self._limits
        with self._connection as db:
            db.execute("DELETE FROM responses WHERE id = ?", (response_id,))
            if len(record) > limits.max_bytes:
                return
            db.execute("INSERT INTO responses VALUES (?, ?, ?)", (response_id, self._clock(), record))
            self._forget_old(db)
            db.execute(_SURPLUS, (limits.max_count, limits.max_bytes))

    def _delete(self, response_id: str) -> bool:
        with self._connection as db:
            self._forget_old(db)
            return db.execute("DELETE FROM responses WHERE id = ?", (response_id,)).rowcount > 0

    def _forget_old(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM responses WHERE used < ?", (self._clock() - self._limits.max_age,))


def _opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
    try:
        connection.executescript(_SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
