from __future__ import annotations

import sys

from tests.unit.scheduling.driver import layout, request

from octavo.scheduling.kv.manager import KVManager
from octavo.scheduling.request import Request


def _manager(*windows: int, num_blocks: int = 50, block_size: int = 4, caching: bool = True) -> KVManager:
    return KVManager(layout(*windows, block_size=block_size), num_blocks, enable_prefix_caching=caching)


def _entry(tokens: list[int], name: str = "r", salt: str | None = None) -> Request:
    source = request(name, tokens, cache_salt=salt)
    return Request(source, sequence=0, max_total_tokens=1000, now=0.0)


def _compute(kv: KVManager, entry: Request, chunk: int = 1000) -> None:
    """Admit and compute all known tokens."""
    kv.admit(entry, kv.find_prefix(entry))
    while entry.num_remaining_tokens:
        count = min(chunk, entry.num_remaining_tokens)
        kv.slide(entry)
        kv.extend(entry, count)
        entry.num_computed_tokens += count
        kv.index_pages(entry)


def _hit(kv: KVManager, tokens: list[int], salt: str | None = None) -> int:
    return kv.find_prefix(_entry(tokens, salt=salt)).num_pages


def test_prefix_is_found_in_whole_pages_and_never_all_of_it() -> None:
    kv = _manager(0)
    entry = _entry(list(range(10)))
    _compute(kv, entry)
    assert _hit(kv, list(range(10))) == 2
    assert _hit(kv, list(range(8))) == 1  # the last token must be computed
    assert _hit(kv, list(range(9))) == 2
    assert _hit(kv, [0, 1, 2, 3, 4, 99, 6, 7, 8]) == 1
    kv.free(entry)
    assert _hit(kv, list(range(10))) == 2
    assert kv.find_prefix(_entry(list(range(10)))).tables == [[1, 2]]


def test_salts_keep_apart() -> None:
    kv = _manager(0)
    _compute(kv, _entry(list(range(10)), salt="a"))
    assert _hit(kv, list(range(10)), salt="a") == 2
    assert _hit(kv, list(range(10)), salt="b") == 0
    assert _hit(kv, list(range(10))) == 0


def test_without_caching_nothing_is_found() -> None:
    kv = _manager(0, caching=False)
    _compute(kv, _entry(list(range(10))))
    assert _hit(kv, list(range(10))) == 0
    assert len(kv.index) == 0


def test_window_groups_give_back_what_fell_out() -> None:
    kv = _manager(0, 5)
    entry = _entry(list(range(22)))
    _compute(kv, entry, chunk=1)
    full, window = entry.pages
    assert 0 not in full
    # The last time pages were needed, position 20 was next: it sees 16..20.
    assert window[:4] == [0, 0, 0, 0]
    assert 0 not in window[4:]
    assert kv.pool.num_free == 50 - 6 - 2


def test_window_groups_need_only_their_window_for_a_hit() -> None:
    kv = _manager(0, 5)
    tokens = list(range(22))
    entry = _entry(tokens)
    _compute(kv, entry, chunk=1)
    early = entry.pages[1][4]
    kv.free(entry)
    hit = kv.find_prefix(_entry(tokens))
    assert hit.num_pages == 5
    assert hit.tables[1] == [0, 0, 0, 0, early]


def test_a_hole_in_the_window_shortens_the_hit_for_all_groups() -> None:
    kv = _manager(0, 5)
    tokens = list(range(22))
    entry = _entry(tokens)
    _compute(kv, entry)
    window_pages = list(entry.pages[1])
    kv.free(entry)
    kv.index.discard(window_pages[3])
    # A prefix of 5 pages needs page 4 of the window; 4 pages need page 3, which is gone; so do not go below that.
    assert _hit(kv, tokens) == 5
    kv.index.discard(window_pages[4])
    hit = kv.find_prefix(_entry(tokens))
    assert hit.num_pages == 3
    assert [len(table) for table in hit.tables] == [3, 3]
    assert hit.tables[1] == [0, 0, window_pages[2]]


def test_groups_do_not_find_each_others_pages() -> None:
    kv = _manager(0, 5)
    entry = _entry(list(range(10)))
    _compute(kv, entry)
    tables = kv.find_prefix(_entry(list(range(10)))).tables
    assert tables == [entry.pages[0][:2], [0, entry.pages[1][1]]]
    assert not set(tables[0]) & set(tables[1])


def test_capacity_counts_windows_at_their_most() -> None:
    assert _manager(0, num_blocks=10).max_tokens(chunked=True) == 40
    # A window of 5 over pages of 4 touches two pages at most: 10 = 8 full + 2.
    assert _manager(0, 5, num_blocks=10).max_tokens(chunked=True) == 32
    assert _manager(0, 5, num_blocks=10).max_tokens(chunked=False) == 20
    assert _manager(5, num_blocks=2).max_tokens(chunked=True) == sys.maxsize
    assert _manager(6, num_blocks=2).max_tokens(chunked=True) == 8
    assert _manager(1, num_blocks=1).max_tokens(chunked=True) == sys.maxsize


def test_what_a_failed_request_computed_is_not_found_by_newcomers() -> None:
    kv = _manager(0)
    shared = _entry(list(range(8)), "shared")
    _compute(kv, shared)
    failed = _entry([*range(8), 50, 51, 52, 53, 54], "failed")
    _compute(kv, failed)
    assert _hit(kv, [*range(8), 50, 51, 52, 53, 54]) == 3
    kv.free(failed, forget=True)
    assert _hit(kv, [*range(8), 50, 51, 52, 53, 54]) == 2  # somebody else holds these two, and they are good
    kv.free(shared)
    assert kv.pool.num_free == 50


def test_cache_is_reset_only_when_nobody_uses_it() -> None:
    kv = _manager(0)
    entry = _entry(list(range(10)))
    _compute(kv, entry)
    assert not kv.reset_prefix_cache()
    assert _hit(kv, list(range(10))) == 2
    kv.free(entry)
    assert kv.reset_prefix_cache()
    assert _hit(kv, list(range(10))) == 0


def test_the_index_does_not_grow_without_end() -> None:
    """Case A99: as many entries as pages, whatever has passed through."""
    kv = _manager(0, num_blocks=20)
    for start in range(0, 40_000, 100):
        entry = _entry(list(range(start, start + 30)))
        _compute(kv, entry)
        kv.free(entry)
    assert len(kv.index) <= 20
    assert kv.pool.num_free == 20
