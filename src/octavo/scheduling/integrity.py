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
        _require(not request.pages and not request.capacity, request.request_id, "waits and holds pages")
    for request in running:
        _check_tables(kv, request)
    _check_pool(kv, running)
    _require(kv.index.is_consistent(), "the prefix index", "has a page under two keys or a key of two pages")


def _require(condition: bool, what: object, problem: str) -> None:
    if not condition:
        raise IntegrityError(f"{what} {problem}")


def _check_tables(kv: KVManager, request: Request) -> None:
    name, num_full = request.request_id, request.num_computed_tokens // kv.block_size
    _require(len(request.pages) == kv.num_groups, name, "does not have one table a group")
    _require(
        request.num_computed_tokens <= len(request.token_ids), name, "computed tokens that it does not have"
    )
    _require(request.num_computed_tokens <= request.capacity, name, "computed more than its pages hold")
    for group, table in enumerate(request.pages):
        _require(len(table) * kv.block_size == request.capacity, name, "has a table that belies its capacity")
        for position, page in enumerate(table):
            fault = _page_fault(kv, request, group, position, is_full=position < num_full)
            if fault is not None:
                raise IntegrityError(f"{name}: page {page}, at {position} of group {group}, {fault}")


def _page_fault(kv: KVManager, request: Request, group: int, position: int, *, is_full: bool) -> str | None:
    """What is wrong with one entry of a table, if anything."""
    page = request.pages[group][position]
    if page == NULL_PAGE:
        window = kv.windows[group]
        is_past = (position + 1) * kv.block_size <= request.num_computed_tokens - window + 1
        return None if window and is_past else "is null and still needed"
    key, owners = kv.index.key(page), kv.pool.ref_counts[page]
    if not is_full:
        if owners != 1:
            return f"is being written and has {owners} owners"
        return None if key is None else "is being written and indexed"
    if key is None:
        return None if owners == 1 else f"has {owners} owners and is not indexed"
    return None if key == (group, request.page_hashes[position + 1]) else "is indexed under a wrong key"


def _check_pool(kv: KVManager, running: Sequence[Request]) -> None:
    counted: Counter[int] = Counter()
    for request in running:
        for table in request.pages:
            counted.update(table)
    counted[NULL_PAGE] = 0
    free = kv.pool.free_pages()
    _require(NULL_PAGE not in free, "the null page", "is in the free list")
    wrong = [page for page, count in enumerate(kv.pool.ref_counts) if count != counted[page]]
    _require(not wrong, wrong, "have reference counts that differ from the tables")
    shared = sum(count > 1 for count in counted.values())
    _require(kv.pool.num_shared == shared, "the pool", "counts other pages as shared than the tables show")
    lost = set(range(1, kv.pool.num_blocks + 1)) - {page for page, count in counted.items() if count} ^ set(
        free
    )
    _require(not lost, sorted(lost), "are neither free nor in a table, or both")
    _require(len(free) == len(set(free)), "a page", "is in the free list twice")
