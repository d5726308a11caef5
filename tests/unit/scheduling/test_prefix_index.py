from __future__ import annotations

import hashlib
import subprocess
import sys

from octavo.scheduling.kv.prefix_index import PageHasher, PrefixIndex, root_hash


def _chain(token_ids: list[int], extras: dict[str, str] | None = None, block_size: int = 4) -> list[bytes]:
    chain = [root_hash(extras or {})]
    PageHasher(block_size).extend(chain, token_ids, len(token_ids) // block_size)
    return chain[1:]


def test_a_hash_covers_the_page_and_all_before_it() -> None:
    base = _chain([1, 2, 3, 4, 5, 6, 7, 8])
    assert _chain([1, 2, 3, 4]) == base[:1]
    changed_first = _chain([9, 2, 3, 4, 5, 6, 7, 8])
    assert changed_first[0] != base[0]
    assert changed_first[1] != base[1]
    assert _chain([1, 2, 3, 4, 5, 6, 7, 9])[1] != base[1]


def test_extending_in_pieces_gives_the_same_chain() -> None:
    tokens = list(range(100, 120))
    chain = [root_hash({})]
    hasher = PageHasher(4)
    for pages in range(1, 6):
        hasher.extend(chain, tokens, pages)
    assert chain[1:] == _chain(tokens)


def test_an_adapter_is_no_salt_and_extras_do_not_run_into_each_other() -> None:
    """Case A62: an adapter named like a cache salt must not find the salt's pages."""
    roots = [
        root_hash({}),
        root_hash({"salt": ""}),
        root_hash({"salt": "K"}),
        root_hash({"lora": "K"}),
        root_hash({"salt": "K", "lora": "K"}),
        root_hash({"salt": "Klora:1:K"}),
        root_hash({"lora": "1:K", "salt": "K"}),
    ]
    assert len(set(roots)) == len(roots)


def test_the_hash_is_the_documented_one_in_every_process() -> None:
    root = hashlib.sha256(b"octavo kv prefix 1\nsalt:1:K").digest()
    assert root_hash({"salt": "K"}) == root
    expected = hashlib.sha256(root + bytes([1, 0, 0, 0, 0, 1, 0, 0])).digest()
    assert _chain([1, 256], {"salt": "K"}, block_size=2) == [expected]
    script = "from octavo.scheduling.kv.prefix_index import root_hash; print(root_hash({'salt': 'K'}).hex())"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == root.hex()


def test_the_first_page_of_a_key_stays() -> None:
    index = PrefixIndex()
    index.insert((0, b"k"), 1)
    index.insert((0, b"k"), 2)
    assert index.find((0, b"k")) == 1
    assert index.key(2) is None
    index.discard(2)
    index.discard(1)
    assert len(index) == 0
    assert index.is_consistent()
