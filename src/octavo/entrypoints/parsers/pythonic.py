"""Calls written as Python: `[get_weather(city='Paris', days=3)]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from octavo.entrypoints.parsers.calls import Calls
from octavo.entrypoints.parsers.json_text import MAX_NAME, escaped, quoted
from octavo.entrypoints.parsers.source import Malformed, Reading, Source

Tell = Callable[[str], object]
_IDENTIFIER = re.compile(r"[\w.\-]*")
_WORD = re.compile(r"[-+.\w]*")
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}
_DEPTH = 32


@dataclass(frozen=True)
class Pythonic:
    """Calls of functions with named arguments.

    Attributes:
        bracketed: They stand in a list; else they stand one after another.
        close: What ends them.
        known_only: Take it for a call only if there is such a tool.
    """

    bracketed: bool = True
    close: tuple[str, ...] = ()
    known_only: bool = False

    def markers(self) -> tuple[str, ...]:
        """What ends the calls."""
        return self.close

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        source = calls.source
        if self.bracketed:
            yield from source.expect("[")
        while True:
            yield from source.skip_space()
            yield from self._read_call(calls)
            yield from source.skip_space()
            mark = yield from source.peek()
            if mark == ",":
                source.take(1)
            elif self.bracketed or not re.match(r"[A-Za-z_]", mark):
                break
        if self.bracketed:
            yield from source.expect("]")
        yield from source.skip_space()
        if self.close:
            yield from source.choose(*self.close)

    def _read_call(self, calls: Calls) -> Reading[None]:
        source = calls.source
        name = yield from source.run(_IDENTIFIER, MAX_NAME)
        if not name or name[0].isdigit() or (self.known_only and name not in calls.tools):
            raise Malformed
        if (yield from source.peek()) != "(":
            raise Malformed
        source.take(1)
        calls.start(name)
        yield from source.skip_space()
        before = "{"
        while (yield from source.peek()) != ")":
            key = yield from source.run(_IDENTIFIER, MAX_NAME)
            if not key:
                raise Malformed
            yield from source.expect("=")
            yield from source.skip_space()
            calls.arguments(f"{before}{quoted(key)}: ")
            before = ", "
            yield from _literal(source, calls.arguments, _DEPTH)
            yield from source.skip_space()
            if (yield from source.peek()) == ",":
                source.take(1)
                yield from source.skip_space()
        source.take(1)
        calls.arguments("}" if before == ", " else "{}")
        calls.end()


def _literal(source: Source, tell: Tell, depth: int) -> Reading[None]:
    """A Python literal, told as JSON."""
    first = yield from source.peek()
    if not depth:
        raise Malformed
    if first in ("'", '"'):
        yield from _string(source, tell)
    elif first in ("[", "("):
        yield from _items(source, tell, depth, "]" if first == "[" else ")", ("[", "]"), keyed=False)
    elif first == "{":
        yield from _items(source, tell, depth, "}", ("{", "}"), keyed=True)
    else:
        word = yield from source.run(_WORD, MAX_NAME)
        tell(_scalar(word))


def _items(
    source: Source, tell: Tell, depth: int, end: str, brackets: tuple[str, str], *, keyed: bool
) -> Reading[None]:
    source.take(1)
    tell(brackets[0])
    first = True
    while True:
        yield from source.skip_space()
        if (yield from source.peek()) == end:
            source.take(1)
            tell(brackets[1])
            return
        if not first:
            tell(", ")
        first = False
        if keyed:
            if (yield from source.peek()) not in ("'", '"'):
                raise Malformed
            yield from _string(source, tell)
            yield from source.expect(":")
            yield from source.skip_space()
            tell(": ")
        yield from _literal(source, tell, depth - 1)
        yield from source.skip_space()
        mark = yield from source.peek()
        if mark == ",":
            source.take(1)
        elif mark != end:
            raise Malformed


def _scalar(word: str) -> str:
    if word in _WORDS:
        return _WORDS[word]
    if not _NUMBER.fullmatch(word) or not any(c.isdigit() for c in word):
        raise Malformed
    try:
        return str(int(word))
    except ValueError:
        value = float(word)
    if value in (float("inf"), float("-inf")):
        raise Malformed
    return repr(value)


def _string(source: Source, tell: Tell) -> Reading[None]:
    quote = source.take(1)
    plain = _PLAIN[quote]
    tell('"')
    while True:
        mark = yield from source.peek()
        found = plain.match(source.text, source.at)
        if found is not None:
            tell(escaped(source.take(found.end() - source.at)))
        elif mark == quote:
            source.take(1)
            tell('"')
            return
        elif mark == "\\":
            tell(escaped((yield from _escape(source))))
        else:
            raise Malformed


def _escape(source: Source) -> Reading[str]:
    source.take(1)
    kind = yield from source.peek()
    if not kind:
        raise Malformed
    source.take(1)
    if kind not in _HEX:
        return _ESCAPES.get(kind, kind if kind in "'\"\\" else "\\" + kind)
    digits = ""
    while len(digits) < _HEX[kind]:
        digit = yield from source.peek()
        if not digit or digit not in "0123456789abcdefABCDEF":
            raise Malformed
        digits += source.take(1)
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return "\ufffd"
    return chr(code)
