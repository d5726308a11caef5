"""RWKV "World" vocabularies: at each place of the text, the longest token there is."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_NAMED = {"t": b"\t", "n": b"\n", "r": b"\r"}


def unescape(text: str) -> bytes:
    r"""Bytes of a token written with `\n`, `\t`, `\r`, `\xNN` and `\` before itself."""
    written = b""
    at = 0
    for match in _ESCAPE.finditer(text):
        written += text[at : match.start()].encode("utf-8")
        code, letter = match.groups()
        written += bytes.fromhex(code) if code else _NAMED.get(letter, letter.encode("utf-8"))
        at = match.end()
    return written + text[at:].encode("utf-8")


class LongestMatch:
    """Encodes text by the longest token at each place.

    Args:
        ids: Bytes of each token to its id.
        unknown_id: Stands for a byte where no token begins, if there is one.
    """

    def __init__(self, ids: Mapping[bytes, int], unknown_id: int | None) -> None:
        self._ids = ids
        self._unknown = [] if unknown_id is None else [unknown_id]
        self._lengths: dict[int, list[int]] = {}
        for text in sorted(ids, key=len, reverse=True):
            lengths = self._lengths.setdefault(text[0], [])
            if len(text) not in lengths:
                lengths.append(len(text))

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; see `FragmentEncoder.encode`."""
        data = text.encode("utf-8")
        found: list[int] = []
        at = 0
        while at < len(data):
            for length in self._lengths.get(data[at], ()):
                token = self._ids.get(data[at : at + length])
                if token is not None:
                    found.append(token)
                    at += length
                    break
            else:
                found += self._unknown
                at += 1
        return found
