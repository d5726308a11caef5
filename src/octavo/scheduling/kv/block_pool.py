"""The pool of pages: reference counts, and a free list that is also the cache of pages nobody uses right now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from octavo.scheduling.kv.prefix_index import PrefixIndex

NULL_PAGE = 0
"""Stands in a block table where a page is no longer, or not, needed. Never allocated, never read."""


class BlockPool:
    """Pages 1 to `num_blocks` (page 0, the null page, comes on top).

    Free pages lie in one queue. Those without an entry in the prefix index go to its front, as their content is worth
    nothing; those with one go to its back and are evicted least recently used first. Every operation is O(1) a page.
    """

    def __init__(self, num_blocks: int, index: PrefixIndex) -> None:
        self.num_blocks = num_blocks
        self.index = index
        self.ref_counts = [0] * (num_blocks + 1)
        self.num_shared = 0
        """Pages that more than one request refers to."""
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks + 1))

    @property
    def num_free(self) -> int:
        """Pages that nobody refers to; cached ones count, as they can be evicted."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the pages that are referred to, 0..1."""
        return 1.0 - len(self._free) / max(1, self.num_blocks)

    def free_pages(self) -> list[int]:
        """The free pages in the order in which they would be taken, for checks."""
        return list(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages, evicting cached ones where needed; the caller has checked `num_free`."""
        pages = []
        for _ in range(count):
            page, _none = self._free.popitem(last=False)
            self.index.discard(page)
            self.ref_counts[page] = 1
            pages.append(page)
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Add one reference to each of `pages` (null pages are skipped)."""
        for page in pages:
            if page == NULL_PAGE:
                continue
            if self.ref_counts[page] == 0:
                del self._free[page]
            self.ref_counts[page] += 1
            self.num_shared += self.ref_counts[page] == 2

    def release(self, pages: Iterable[int]) -> None:
        """Drop one reference to each of `pages` (null pages are skipped).

        Give the last page of a sequence first: of one prefix, the tail is then evicted before the head.
        """
        for page in pages:
            if page == NULL_PAGE:
                continue
            self.ref_counts[page] -= 1
            self.num_shared -= self.ref_counts[page] == 1
            if self.ref_counts[page] == 0:
                self._free[page] = None
                if self.index.key(page) is None:
                    self._free.move_to_end(page, last=False)
