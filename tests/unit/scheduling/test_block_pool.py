from __future__ import annotations

from octavo.scheduling.kv.block_pool import BlockPool
from octavo.scheduling.kv.prefix_index import PrefixIndex


def _pool(num_blocks: int) -> BlockPool:
    return BlockPool(num_blocks, PrefixIndex())


def test_null_page_is_never_handed_out() -> None:
    pool = _pool(3)
    assert pool.allocate(3) == [1, 2, 3]
    assert pool.num_free == 0
    assert pool.usage == 1.0


def test_a_shared_page_is_free_when_the_last_owner_leaves() -> None:
    pool = _pool(2)
    (page,) = pool.allocate(1)
    pool.share([page, 0])
    pool.release([page])
    assert pool.num_free == 1
    pool.release([page, 0])
    assert pool.num_free == 2
    assert pool.ref_counts == [0, 0, 0]


def test_cached_pages_are_evicted_least_recently_used_first_and_tails_before_heads() -> None:
    pool = _pool(4)
    pages = pool.allocate(4)
    for number, page in enumerate(pages):
        pool.index.insert((0, bytes([number])), page)
    pool.release(reversed(pages[:2]))
    pool.release(reversed(pages[2:]))
    assert pool.free_pages() == [pages[1], pages[0], pages[3], pages[2]]
    assert pool.allocate(1) == [pages[1]]
    assert pool.index.find((0, b"\x01")) is None
    assert pool.index.find((0, b"\x00")) == pages[0]


def test_pages_without_content_worth_keeping_go_first() -> None:
    pool = _pool(2)
    pages = pool.allocate(2)
    pool.index.insert((0, b"kept"), pages[0])
    pool.release([pages[0]])
    pool.release([pages[1]])
    assert pool.free_pages() == [pages[1], pages[0]]


def test_a_page_that_is_found_again_leaves_the_free_list() -> None:
    pool = _pool(2)
    pages = pool.allocate(1)
    pool.index.insert((0, b"key"), pages[0])
    pool.release(pages)
    pool.share(pages)
    assert pool.free_pages() == [2]
    assert pool.ref_counts[pages[0]] == 1
