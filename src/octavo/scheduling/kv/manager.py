"""Block tables of the requests: which page of which group holds which tokens.

All tables of a request have the same length; page i of a table is for tokens [i * block_size, (i + 1) * block_size).
Where a sliding-window group needs a page no more, its table has the null page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.scheduling.kv.block_pool import NULL_PAGE, BlockPool
from octavo.scheduling.kv.prefix_index import PageHasher, PrefixIndex
from octavo.scheduling.request import Request
from octavo.types.kv import KVLayout


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Pages already computed for the start of a request: one table for each group, all of the same length."""

    tables: list[list[int]]
    num_pages: int


class KVManager:
    """Hands out pages of one pool to the tables of requests, and finds pages that were computed before.

    Args:
        layout: Page size and groups.
        num_blocks: Pages in the pool, the null page not counted.
        enable_prefix_caching: Whether full pages are indexed and found again.
    """

    def __init__(self, layout: KVLayout, num_blocks: int, *, enable_prefix_caching: bool) -> None:
        self.layout = layout
        self.block_size = layout.block_size
        self.windows = [group.window for group in layout.groups]
        self.num_groups = len(layout.groups)
        self.enable_prefix_caching = enable_prefix_caching
        self.index = PrefixIndex()
        self.pool = BlockPool(num_blocks, self.index)
        self._hasher = PageHasher(layout.block_size)
        self._sliding = [(group, window) for group, window in enumerate(self.windows) if window]

    # -- how much fits ------------------------------------------------------------------------------------------------

    def pages_for(self, num_tokens: int, chunk: int = 1) -> int:
        """Most pages that a request of `num_tokens` tokens ever holds at once, computed `chunk` tokens at a time."""
        total = -(-num_tokens // self.block_size)
        return sum(
            min(total, self._window_pages(window, chunk)) if window else total for window in self.windows
        )

    def max_tokens(self, *, chunked: bool) -> int:
        """The longest sequence that a request can compute when it has the pool to itself."""
        usable = self.pool.num_blocks
        if not chunked:
            return usable // max(1, self.num_groups) * self.block_size
        if self.pages_for(sys.maxsize) <= usable:
            return sys.maxsize
        low, high = 0, (usable + 1) * self.block_size  # pages_for(low) fits, pages_for(high) does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.pages_for(middle) <= usable else (low, middle)
        return low

    def has_room(self, request: Request, hit: PrefixHit, chunk: int, spare: int) -> bool:
        """Whether all known tokens of a waiting request fit into the free pages, with `spare` pages left over."""
        total = -(-len(request.token_ids) // self.block_size) - hit.num_pages
        new = sum(
            min(total, self._window_pages(window, chunk)) if window else total for window in self.windows
        )
        revived = sum(
            page != NULL_PAGE and not self.pool.ref_counts[page] for table in hit.tables for page in table
        )
        return new + revived + spare <= self.pool.num_free

    def fitting_tokens(self, request: Request, want: int) -> int:
        """How many of the next `want` tokens of a running request the free pages have room for."""
        columns = self.pool.num_free // self.num_groups
        room = request.capacity + columns * self.block_size - request.num_computed_tokens
        return max(0, min(want, room))

    def _window_pages(self, window: int, chunk: int) -> int:
        """Most pages that `window - 1` old tokens and `chunk` new ones can touch."""
        return -(-(window + chunk - 2) // self.block_size) + 1

    # -- the life of a table ------------------------------------------------------------------------------------------

    def find_prefix(self, request: Request) -> PrefixHit:
        """The longest computed prefix of a waiting request; its last token is never part of it.

        Full groups must have all pages of the prefix, window groups those that the next token looks at.
        """
        limit = (len(request.token_ids) - 1) // self.block_size
        if not (self.enable_prefix_caching and request.reads_prefix_cache and limit):
            return PrefixHit([[] for _ in self.windows], 0)
        self._hasher.extend(request.page_hashes, request.token_ids, limit)
        hashes = request.page_hashes[1:]
        length = self._common_prefix(hashes, limit)
        tables = [self._hit_table(group, window, hashes, length) for group, window in enumerate(self.windows)]
        return PrefixHit(tables, length)

    def next_page_key(self, request: Request, hit: PrefixHit) -> bytes | None:
        """The hash of the first full page that a waiting request would have to compute; None if it has none."""
        following = request.page_hashes[hit.num_pages + 1 : hit.num_pages + 2]
        return following[0] if following and request.reads_prefix_cache else None

    def coming_pages(self, running: Iterable[Request]) -> set[bytes]:
        """Hashes of the full pages that running requests know and are about to compute."""
        return {key for request in running for key in request.page_hashes[request.num_indexed_pages + 1 :]}

    def admit(self, request: Request, hit: PrefixHit) -> None:
        """Give a waiting request its tables, with the pages of `hit` in them."""
        for table in hit.tables:
            self.pool.share(table)
        request.pages = hit.tables
        request.num_computed_tokens = request.capacity = hit.num_pages * self.block_size
        request.num_indexed_pages = hit.num_pages
        if request.num_cached_tokens is None:
            request.num_cached_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)

    def slide(self, request: Request) -> None:
        """Give back the pages that fell out of the windows for good."""
        for group, window in self._sliding:
            table = request.pages[group]
            end = self._first_needed(request.num_computed_tokens, window)
            start = end
            while start and table[start - 1] != NULL_PAGE:
                start -= 1
            if start < end:
                self.pool.release(reversed(table[start:end]))
                table[start:end] = [NULL_PAGE] * (end - start)

    def extend(self, request: Request, num_tokens: int) -> list[list[int]]:
        """Make room for the next `num_tokens` tokens, which `fitting_tokens` allowed.

        Returns:
            The pages appended to each group's table.
        """
        needed = request.num_computed_tokens + num_tokens - request.capacity
        columns = max(0, -(-needed // self.block_size))
        added = [self.pool.allocate(columns) for _ in request.pages]
        for table, pages in zip(request.pages, added, strict=True):
            table.extend(pages)
        request.capacity += columns * self.block_size
        return added

    def index_pages(self, request: Request) -> None:
        """Let others find the pages whose tokens are all computed by now."""
        if not self.enable_prefix_caching:
            return
        num_full = request.num_computed_tokens // self.block_size
        if num_full <= request.num_indexed_pages:
            return
        self._hasher.extend(request.page_hashes, request.token_ids, num_full)
        for page in range(request.num_indexed_pages, num_full):
            key = request.page_hashes[page + 1]
            for group, table in enumerate(request.pages):
                if table[page] != NULL_PAGE:
                    self.index.insert((group, key), table[page])
        request.num_indexed_pages = num_full

    def free(self, request: Request, *, forget: bool = False) -> None:
        """Take a request's tables away. `forget`: what it computed is not to be trusted, nobody new may find it."""
        for table in request.pages:
            self.pool.release(reversed(table))
        if forget:
            self._forget(request)
        request.pages = []
        request.capacity = request.num_computed_tokens = request.num_indexed_pages = 0

    def _forget(self, request: Request) -> None:
        for key in request.page_hashes[1:]:
            for group in range(self.num_groups):
                page = self.index.find((group, key))
                if page is not None and not self.pool.ref_counts[page]:
                    self.index.discard(page)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached pages; refused (False) while a request holds pages."""
        if self.pool.num_free != self.pool.num_blocks:
            return False
        self.index.clear()
        return True

    # -- prefix search ------------------------------------------------------------------------------------------------

    def _first_needed(self, position: int, window: int) -> int:
        """The first page that a token at `position` looks at."""
        return max(0, position - window + 1) // self.block_size if window else 0

    def _common_prefix(self, hashes: Sequence[bytes], limit: int) -> int:
        """The most pages that every group can start with: shrink for each group in turn until all agree."""
        length, previous = limit, -1
        while length != previous:
            previous = length
            for group, window in enumerate(self.windows):
                length = self._group_prefix(group, window, hashes, length)
        return length

    def _group_prefix(self, group: int, window: int, hashes: Sequence[bytes], limit: int) -> int:
        """The most pages, up to `limit`, after which one group has all that its next token looks at."""
        find = self.index.find
        if not window:
            return next((page for page in range(limit) if find((group, hashes[page])) is None), limit)
        end, page = limit, limit - 1
        while page >= self._first_needed(end * self.block_size, window):
            if find((group, hashes[page])) is None:
                end = page
            page -= 1
        return end

    def _hit_table(self, group: int, window: int, hashes: Sequence[bytes], length: int) -> list[int]:
        first = min(length, self._first_needed(length * self.block_size, window))
        found = [self.index.find((group, hashes[page])) for page in range(first, length)]
        return [NULL_PAGE] * first + [page for page in found if page is not None]
