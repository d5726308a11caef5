"""Text that arrives in pieces, read by generators: a `yield` says that more is needed to go on.

What was read is gone; only what could still become a marker waits. So reading is linear, however the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

SPACE = " \t\r\n"
_SPACES = re.compile(r"[ \t\r\n]*")


class Malformed(Exception):
    """What comes next cannot be part of a call. It has not been read."""


class Markers:
    """Strings to look for. None may lie within another, or which one is meant would depend on how the text is cut."""

    def __init__(self, markers: Sequence[str]) -> None:
        self.all = tuple(dict.fromkeys(filter(None, markers)))
        for marker in self.all:
            if any(marker in other for other in self.all if other is not marker):
                raise ValueError(f"the marker {marker!r} is part of another one")
        self.pattern = re.compile("|".join(map(re.escape, self.all)) or r"(?!)")
        self._prefixes = frozenset(marker[:n] for marker in self.all for n in range(1, len(marker)))
        self._reach = max(map(len, self.all), default=1) - 1
        self._heads = re.compile("|".join({re.escape(marker[0]) for marker in self.all}) or r"(?!)")

    def held_from(self, text: str, at: int) -> int:
        """Where an unfinished marker begins that `text` may end with, else its length."""
        for head in self._heads.finditer(text, max(at, len(text) - self._reach)):
            if text[head.start() :] in self._prefixes:
                return head.start()
        return len(text)


@lru_cache(maxsize=256)
def markers_of(*markers: str) -> Markers:
    """`Markers`, made once for each set."""
    return Markers(markers)


class Source:
    """What has arrived and is not read. With `kept` set, what is read is kept there, to be given back."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.kept: list[str] | None = None

    def give(self, text: str) -> None:
        """More text."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def take(self, count: int) -> str:
        """Read `count` characters, which must be there."""
        piece = self.text[self.at : self.at + count]
        self.at += count
        if self.kept is not None and piece:
            self.kept.append(piece)
        return piece

    def put_back(self, count: int) -> None:
        """Unread the last `count` characters, which must have come in the same step and not be kept."""
        self.at -= count

    def peek(self) -> Reading[str]:
        """The next character; empty at the end."""
        while self.at >= len(self.text):
            if self.ended:
                return ""
            yield
        return self.text[self.at]

    def skip_space(self) -> Reading[None]:
        """Go to the next character that is no space."""
        while True:
            found = _SPACES.match(self.text, self.at)
            assert found is not None
            self.take(found.end() - self.at)
            if self.at < len(self.text) or self.ended:
                return
            yield

    def expect(self, character: str) -> Reading[None]:
        """Spaces, then `character`.

        Raises:
            Malformed: something else comes.
        """
        yield from self.skip_space()
        if (yield from self.peek()) != character:
            raise Malformed
        self.take(1)

    def choose(self, *options: str) -> Reading[str | None]:
        """Read whichever of `options` comes next, if one does."""
        while True:
            waits = False
            for option in options:
                if self.text.startswith(option, self.at):
                    self.take(len(option))
                    return option
                rest = len(self.text) - self.at
                waits = waits or (rest < len(option) and option.startswith(self.text[self.at :]))
            if not waits or self.ended:
                return None
            yield

    def run(self, pattern: re.Pattern[str], limit: int) -> Reading[str]:
        """The longest run of characters of a class, of at most `limit`.

        Args:
            pattern: One character class, repeated from zero times.

        Raises:
            Malformed: it is longer.
        """
        parts: list[str] = []
        while True:
            found = pattern.match(self.text, self.at)
            assert found is not None
            parts.append(self.take(min(found.end() - self.at, limit)))
            limit -= len(parts[-1])
            if found.end() > self.at:
                raise Malformed
            if self.at < len(self.text) or self.ended:
                return "".join(parts)
            yield

    def until(
        self, markers: Markers, tell: Callable[[str], object], limit: int | None = None
    ) -> Reading[str | None]:
        """Tell all text before the next marker, and read that; None: the text ended before one came.

        Args:
            limit: Characters that may come before the marker.

        Raises:
            Malformed: more came; the first `limit` of them are told.
        """
        while True:
            found = markers.pattern.search(self.text, self.at)
            if found is not None:
                stop = found.start()
            else:
                stop = len(self.text) if self.ended else markers.held_from(self.text, self.at)
            size = stop - self.at
            if limit is not None:
                size = min(size, limit)
                limit -= size
            if size:
                tell(self.take(size))
            if self.at < stop:
                raise Malformed
            if found is not None:
                return self.take(len(found.group()))
            if self.ended:
                return None
            yield
