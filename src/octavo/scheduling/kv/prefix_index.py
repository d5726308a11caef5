"""Which pages hold which prefix: a stable hash chain over full pages, and the map from hash to page.

The key of a page is sha256 over the key of the page before it and the page's token ids (the idea is vLLM's automatic
prefix caching). The chain starts from a root that covers what else the keys and values depend on or must be kept apart
by (salt, adapter): each extra goes in with its domain and its length, so that a salt can never look like an adapter.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256

PageKey = tuple[int, bytes]
"""(page group, hash of the prefix that ends with the page)."""

_ROOT_TAG = b"octavo kv prefix 1\n"


def root_hash(extras: Mapping[str, str]) -> bytes:
    """Start of a chain. `extras` maps a domain (`salt`, `lora`, ...) to its value."""
    digest = sha256(_ROOT_TAG)
    for domain in sorted(extras):
        value = extras[domain].encode()
        digest.update(f"{domain}:{len(value)}:".encode() + value)
    return digest.digest()


class PageHasher:
    """Extends chains of page hashes; one page is `block_size` tokens."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._pack = struct.Struct(f"<{block_size}I").pack

    def extend(self, chain: list[bytes], token_ids: Sequence[int], num_pages: int) -> None:
        """Append hashes of full pages until `chain`, whose first entry is the root, covers `num_pages` pages."""
        size = self.block_size
        for page in range(len(chain) - 1, num_pages):
            tokens = self._pack(*token_ids[page * size : (page + 1) * size])
            chain.append(sha256(chain[-1] + tokens).digest())


class PrefixIndex:
    """Two-way map between page keys and pages. A page has at most one key, a key at most one page."""

    def __init__(self) -> None:
        self._page_of: dict[PageKey, int] = {}
        self._key_of: dict[int, PageKey] = {}

    def __len__(self) -> int:
        return len(self._page_of)

    def find(self, key: PageKey) -> int | None:
        """The page that holds `key`, or None."""
        return self._page_of.get(key)

    def key(self, page: int) -> PageKey | None:
        """The key of `page`, or None where it is not indexed."""
        return self._key_of.get(page)

    def insert(self, key: PageKey, page: int) -> None:
        """Index `page` under `key`; the first page of a key stays when two requests computed the same prefix at once."""
        if key not in self._page_of:
            self._page_of[key] = page
            self._key_of[page] = key

    def discard(self, page: int) -> None:
        """Forget `page`, if it is indexed."""
        key = self._key_of.pop(page, None)
        if key is not None:
            del self._page_of[key]

    def clear(self) -> None:
        """Forget all pages."""
        self._page_of.clear()
        self._key_of.clear()

    def is_consistent(self) -> bool:
        """Whether both directions of the map agree."""
        return {page: key for key, page in self._page_of.items()} == self._key_of
