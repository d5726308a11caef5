"""Checks of the scheduler's books: recount everything from the tables and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from octavo.scheduling.kv.block_pool import NULL_PAGE
from octavo.scheduling.kv.manager import KVManager
from octavo.scheduling.request import Request


class IntegrityError(AssertionError):
    """The books of the scheduler are wrong."""


def check_integrity(kv: KVManager, running: Sequence[Request], waiting: Sequence[Request]) -> None:
    """Verify tables, reference counts, the free list and the index.

    Raises:
        IntegrityError: says what is broken.
    """
    for request in waiting:
        _require(not request.pages and not request.capacity, f"{request.request_id} waits and holds pages")
    for request in running:
        _check_tables(kv, request)
    _check_pool(kv, running)
    _check_index(kv)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IntegrityError(message)


def _check_tables(kv: KVManager, request: Request) -> None:
    name, num_full = request.request_id, request.num_computed_tokens // kv.block_size
    _require(len(request.pages) == kv.num_groups, f"{name} has {len(request.pages)} tables")
    _require(
        request.num_computed_tokens <= len(request.token_ids), f"{name} computed tokens that it does not have"
    )
    _require(request.num_computed_tokens <= request.capacity, f"{name} computed more than its pages hold")
    for group, table in enumerate(request.pages):
        _require(len(table) * kv.block_size == request.capacity, f"{name} group {group}: capacity is wrong")
        for position, page in enumerate(table):
            _check_page(kv, request, group, position, page, is_full=position < num_full)


def _check_page(
    kv: KVManager, request: Request, group: int, position: int, page: int, *, is_full: bool
) -> None:
    where = f"{request.request_id} group {group} page {position}"
    if page == NULL_PAGE:
        end = (position + 1) * kv.block_size
        window = kv.windows[group]
        _require(window > 0, f"{where} is null in a group that keeps everything")
        _require(end <= request.num_computed_tokens - window + 1, f"{where} is null and still in the window")
        return
    key = kv.index.key(page)
    if not is_full:
        _require(
            kv.pool.ref_counts[page] == 1,
            f"{where} is being written and has {kv.pool.ref_counts[page]} owners",
        )
        _require(key is None, f"{where} is being written and indexed")
        return
    shared = kv.pool.ref_counts[page] > 1
    _require(not shared or key is not None, f"{where} is shared and not indexed")
    _require(
        key is None or key == (group, request.page_hashes[position + 1]),
        f"{where} is indexed under a wrong key",
    )


def _check_pool(kv: KVManager, running: Sequence[Request]) -> None:
    counted = Counter(
        page for request in running for table in request.pages for page in table if page != NULL_PAGE
    )
    free = kv.pool.free_pages()
    _require(len(free) == len(set(free)), "a page is twice in the free list")
    _require(NULL_PAGE not in free, "the null page is in the free list")
    referenced = {page for page, count in enumerate(kv.pool.ref_counts) if count}
    wrong = [page for page in range(1, kv.pool.num_blocks + 1) if kv.pool.ref_counts[page] != counted[page]]
    _require(not wrong, f"reference counts of pages {wrong} differ from the tables")
    _require(not referenced & set(free), f"pages {sorted(referenced & set(free))} are free and referenced")
    _require(len(free) + len(referenced) == kv.pool.num_blocks, "free and referenced pages are not all pages")


def _check_index(kv: KVManager) -> None:
    for key, page in kv.index.items():
        _require(kv.index.key(page) == key, f"page {page} is indexed under two keys")
        _require(0 < page <= kv.pool.num_blocks, f"the index names page {page}")
        _require(0 <= key[0] < kv.num_groups, f"the index names group {key[0]}")
