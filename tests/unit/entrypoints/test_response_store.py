"""Both response stores keep what they were given within their bounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.entrypoints.openai.responses.archive import ResponseArchive, make_archive
from octavo.entrypoints.openai.responses.sqlite_store import SqliteStore
from octavo.entrypoints.openai.responses.store import MemoryStore, ResponseStore, StoreLimits
from octavo.lib.errors import ConfigError, InvalidRequestError, NotFoundError

LIMITS = StoreLimits(max_count=4, max_bytes=100, max_age=50.0)
Make = Callable[[StoreLimits], ResponseStore]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        Clock.now += 1e-3
        return Clock.now


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        return lambda limits: MemoryStore(limits, Clock())
    return lambda limits: SqliteStore(str(tmp_path / "responses.db"), limits, Clock())


def test_what_was_used_longest_ago_goes_first(make: Make) -> None:
    async def go() -> None:
        store = make(LIMITS)
        for name in "abcd":
            await store.put(name, name.encode())
        assert await store.get("a") == b"a"
        await store.put("e", b"e")
        assert await store.get("b") is None
        assert [await store.get(name) for name in "acde"] == [b"a", b"c", b"d", b"e"]
        await store.put("f", b"x" * 98)  # leaves room for two bytes more
        assert [await store.get(name) for name in "acdef"] == [None, None, b"d", b"e", b"x" * 98]
        await store.put("g", b"x" * 101)
        assert await store.get("g") is None
        assert await store.get("f") == b"x" * 98
        await store.close()

    asyncio.run(go())


def test_age_counts_from_the_last_use(make: Make) -> None:
    async def go() -> None:
        store = make(LIMITS)
        await store.put("a", b"1")
        await store.put("b", b"2")
        Clock.now += 30
        assert await store.get("a") == b"1"
        Clock.now += 30
        assert await store.get("b") is None
        assert await store.get("a") == b"1"
        assert await store.delete("a")
        assert not await store.delete("a")
        await store.close()

    asyncio.run(go())


def test_both_stores_do_the_same(tmp_path: Path) -> None:
    async def go() -> None:
        rng = random.Random(5)
        stores: list[ResponseStore] = [
            MemoryStore(LIMITS, lambda: Clock.now),
            SqliteStore(str(tmp_path / "r.db"), LIMITS, lambda: Clock.now),
        ]
        for _ in range(400):
            name, Clock.now = rng.choice("abcdefgh"), Clock.now + rng.choice([1, 1, 1, 20])
            what, record = rng.choice(["get", "put", "put", "delete"]), b"x" * rng.randrange(120)
            if what == "put":
                for store in stores:
                    await store.put(name, record)
            else:
                first, second = [await getattr(store, what)(name) for store in stores]
                assert first == second
        for store in stores:
            await store.close()

    asyncio.run(go())


def test_a_file_outlives_its_server_and_is_shared(tmp_path: Path) -> None:
    async def go() -> None:
        path = str(tmp_path / "r.db")
        first, second = SqliteStore(path, LIMITS), SqliteStore(path, LIMITS)
        await first.put("a", b"1")
        await first.close()
        assert await second.get("a") == b"1"
        await second.close()

    asyncio.run(go())


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Nothing to do with a database, but long enough to look at." * 20)
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        make_archive(str(path), LIMITS)
    with pytest.raises(ConfigError, match=r"x\.db"):
        make_archive(str(tmp_path / "missing" / "x.db"), LIMITS)


def test_a_chain_is_told_oldest_first_and_breaks_clearly(make: Make) -> None:
    def response(name: str, previous: str | None) -> dict[str, object]:
        return {"id": name, "previous_response_id": previous, "output": [{"out": name}]}

    async def go() -> None:
        archive = ResponseArchive(make(StoreLimits(100, 100_000, 1e6)))
        await archive.save(response("a", None), [{"in": "a"}])
        await archive.save(response("b", "a"), [{"in": "b"}])
        assert await archive.history("b") == [{"in": "a"}, {"out": "a"}, {"in": "b"}, {"out": "b"}]
        await archive.delete("a")
        with pytest.raises(NotFoundError) as missing:
            await archive.history("b")
        assert missing.value.param == "previous_response_id"
        await archive.save(response("loop", "loop"), [])
        with pytest.raises(InvalidRequestError, match="4096"):
            await archive.history("loop")
        await archive.close()

    asyncio.run(go())
