"""Calls with bare keys in braces: `call:get_weather{city:<escape>Paris<escape>,days:3}` (FunctionGemma, Gemma 4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from octavo.entrypoints.parsers.calls import Calls
from octavo.entrypoints.parsers.json_text import MAX_NAME, escaped, quoted
from octavo.entrypoints.parsers.source import Malformed, Reading, Source, markers_of
from octavo.entrypoints.parsers.values import typed

_KEY = re.compile(r"[\w.\-$]*")
_BARE = re.compile(r"[^,{}\[\]<]*")
_BARE_LIMIT = 4096
_DEPTH = 32


@dataclass(frozen=True)
class Braces:
    """Attributes:
    quote: What stands around a string.
    close: What ends a call.
    """

    quote: str
    close: tuple[str, ...]

    def markers(self) -> tuple[str, ...]:
        """All of its strings."""
        return (self.quote, *self.close)

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        source = calls.source
        yield from source.skip_space()
        if (yield from source.choose("call:")) is None:
            raise Malformed
        name = yield from source.run(_KEY, MAX_NAME)
        if not name or (yield from source.peek()) != "{":
            raise Malformed
        calls.start(name)
        yield from self._group(source, calls.arguments, _DEPTH)
        calls.end()
        yield from source.skip_space()
        yield from source.choose(*self.close)

    def _value(self, source: Source, tell: Callable[[str], object], depth: int) -> Reading[None]:
        if not depth:
            raise Malformed
        if (yield from source.peek()) in ("{", "["):
            yield from self._group(source, tell, depth)
        elif (yield from source.choose(self.quote)):
            tell('"')
            found = yield from source.until(markers_of(self.quote), lambda text: tell(escaped(text)))
            if found is None:
                raise Malformed
            tell('"')
        else:
            bare = (yield from source.run(_BARE, _BARE_LIMIT)).strip()
            if not bare or (source.ended and source.at >= len(source.text)):
                raise Malformed
            tell(typed(bare, frozenset()))

    def _group(self, source: Source, tell: Callable[[str], object], depth: int) -> Reading[None]:
        """An object with bare keys, or a list."""
        bracket = source.take(1)
        keyed, end = bracket == "{", "}" if bracket == "{" else "]"
        tell(bracket)
        first = True
        while True:
            yield from source.skip_space()
            mark = yield from source.peek()
            if mark == end:
                source.take(1)
                tell(end)
                return
            if mark == "," and not first:
                source.take(1)
                yield from source.skip_space()
            before = "" if first else ", "
            first = False
            if keyed:
                key = yield from self._key(source)
                yield from source.expect(":")
                yield from source.skip_space()
                before += quoted(key) + ": "
            if before:
                tell(before)
            yield from self._value(source, tell, depth - 1)

    def _key(self, source: Source) -> Reading[str]:
        if (yield from source.choose(self.quote)):
            parts: list[str] = []
            if (yield from source.until(markers_of(self.quote), parts.append, MAX_NAME)) is None:
                raise Malformed
            return "".join(parts)
        key = yield from source.run(_KEY, MAX_NAME)
        if not key:
            raise Malformed
        return key
