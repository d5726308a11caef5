"""JSON that passes through: where a value ends is found without building it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from octavo.entrypoints.parsers.source import Malformed, Reading, Source

Tell = Callable[[str], object]
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_STOP = re.compile(r'["\\\x00-\x1f]')
_SCALAR = re.compile(r"[-+.\w]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_CLOSES = {"{": "}", "[": "]"}
# Of a name or a key.
MAX_NAME = 256
_LONGEST_SCALAR = 4096


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """The inside of a JSON string."""
    return quoted(text)[1:-1]


def copy_value(source: Source, tell: Tell) -> Reading[None]:
    """Tell one value as it stands. Control characters in strings, which JSON forbids, are escaped.

    Raises:
        Malformed: brackets do not match, or no value comes.
    """
    first = yield from source.peek()
    if first == '"':
        yield from _copy_string(source, tell)
    elif first in ("{", "["):
        yield from _copy_nested(source, tell)
    else:
        scalar = yield from source.run(_SCALAR, _LONGEST_SCALAR)
        if not scalar:
            raise Malformed
        tell(scalar)


def _copy_nested(source: Source, tell: Tell) -> Reading[None]:
    open_brackets: list[str] = []
    while True:
        found = _STRUCTURE.search(source.text, source.at)
        stop = len(source.text) if found is None else found.start()
        if stop > source.at:
            tell(source.take(stop - source.at))
        if found is None:
            if source.ended:
                raise Malformed
            yield
            continue
        mark = found.group()
        if mark == '"':
            yield from _copy_string(source, tell)
            continue
        if mark in _CLOSES:
            open_brackets.append(_CLOSES[mark])
        elif open_brackets.pop() != mark:
            raise Malformed
        tell(source.take(1))
        if not open_brackets:
            return


def _copy_string(source: Source, tell: Tell) -> Reading[None]:
    tell(source.take(1))
    while True:
        found = _STRING_STOP.search(source.text, source.at)
        stop = len(source.text) if found is None else found.start()
        if stop > source.at:
            tell(source.take(stop - source.at))
        waits = found is None or (found.group() == "\\" and stop + 1 == len(source.text))
        if waits or found is None:
            if source.ended:
                raise Malformed
            yield
            continue
        mark = found.group()
        if mark == '"':
            tell(source.take(1))
            return
        tell(source.take(2) if mark == "\\" else escaped(source.take(1)))


def read_string(source: Source, limit: int = MAX_NAME) -> Reading[str]:
    """One string, decoded.

    Raises:
        Malformed: no string comes, or one of more than `limit` characters.
    """
    yield from source.expect('"')
    parts: list[str] = []
    while True:
        parts.append((yield from source.run(_PLAIN, limit)))
        limit -= len(parts[-1])
        mark = yield from source.peek()
        if mark == '"':
            source.take(1)
            return _decoded("".join(parts))
        if mark != "\\" or limit < 1:
            raise Malformed
        parts.append(source.take(1))
        if not (yield from source.peek()):
            raise Malformed
        parts.append(source.take(1))
        limit -= 1


def _decoded(inside: str) -> str:
    try:
        text: str = json.loads(f'"{inside}"')
    except ValueError:
        raise Malformed from None
    return text


def read_long_string(source: Source) -> Reading[str]:
    """One string of any length, decoded as far as it is valid."""
    raw: list[str] = []
    yield from _copy_string(source, raw.append)
    return _decoded("".join(raw)[1:-1])
