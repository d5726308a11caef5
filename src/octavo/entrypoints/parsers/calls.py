"""How formats write a call, as values: each layout reads calls from a source and tells them as events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from octavo.entrypoints.parsers.json_text import (
    MAX_NAME,
    copy_value,
    escaped,
    quoted,
    read_long_string,
    read_string,
)
from octavo.entrypoints.parsers.source import Malformed, Markers, Reading, Source, markers_of
from octavo.entrypoints.parsers.values import properties_of, typed, types_of

_HEADER_LIMIT = 2 * MAX_NAME


class Calls(Protocol):
    """Where a layout tells what it reads."""

    source: Source
    tools: Mapping[str, Any]
    """The parameters' schemas by the names of the tools."""

    def start(self, name: str, call_id: str | None = None) -> None:
        """A call begins: from here on it cannot be taken back."""
        ...

    def arguments(self, text: str) -> None:
        """More of its arguments."""
        ...

    def end(self) -> None:
        """It is whole."""
        ...


class Layout(Protocol):
    """How calls are written after the marker that announces them."""

    def markers(self) -> tuple[str, ...]:
        """All strings with a meaning in it."""
        ...

    def read(self, calls: Calls) -> Reading[None]:
        """Read the calls.

        Raises:
            Malformed: this is no call.
        """
        ...


@dataclass(frozen=True)
class JsonCalls:
    """`{"name": ..., "arguments": {...}}`, one or a list of them.

    Attributes:
        close: What ends them.
        names, arguments: Keys under which name and arguments lie.
        known_only: Take it for a call only if there is such a tool (where nothing else tells a call from an answer).
    """

    close: tuple[str, ...] = ()
    names: tuple[str, ...] = ("name", "tool_name")
    arguments: tuple[str, ...] = ("arguments", "parameters")
    separators: str = ";"
    known_only: bool = False

    def markers(self) -> tuple[str, ...]:
        """What ends the calls."""
        return self.close

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        source = calls.source
        yield from source.skip_space()
        listed = (yield from source.peek()) == "["
        if listed:
            source.take(1)
        while True:
            yield from self._read_call(calls)
            yield from source.skip_space()
            mark = yield from source.peek()
            if not mark or mark not in ("," if listed else self.separators):
                break
            source.take(1)
        if listed:
            yield from source.expect("]")
        yield from source.skip_space()
        if self.close:
            yield from source.choose(*self.close)

    def _read_call(self, calls: Calls) -> Reading[None]:
        source = calls.source
        name: str | None = None
        early: list[str] = []
        told = False
        yield from source.expect("{")
        while True:
            key = yield from read_string(source)
            yield from source.expect(":")
            yield from source.skip_space()
            if key in self.names and name is None:
                name = yield from read_string(source)
                if not name or (self.known_only and name not in calls.tools):
                    raise Malformed
                calls.start(name)
                for part in early:
                    calls.arguments(part)
            elif key in self.arguments and not told:
                told = True
                yield from copy_arguments(source, calls.arguments if name is not None else early.append)
            elif key in ("id", "type", "index", "tool_call_id"):
                yield from copy_value(source, lambda _: None)
            else:
                raise Malformed
            yield from source.skip_space()
            if (yield from source.peek()) != ",":
                break
            source.take(1)
        yield from source.expect("}")
        if name is None:
            raise Malformed
        if not told:
            calls.arguments("{}")
        calls.end()


def copy_arguments(source: Source, tell: Callable[[str], object]) -> Reading[None]:
    """Arguments as an object; some models write it as a string that holds one, or leave it null."""
    first = yield from source.peek()
    if first == "{":
        yield from copy_value(source, tell)
    elif first == '"':
        tell((yield from read_long_string(source)) or "{}")
    else:
        other: list[str] = []
        yield from copy_value(source, other.append)
        tell("{}" if other == ["null"] else "".join(other))


def plain_name(header: str) -> tuple[str, str | None]:
    """The header is the name."""
    return header.strip(), None


@dataclass(frozen=True)
class NamedJson:
    """A header with the name, a separator, then the arguments as JSON.

    Attributes:
        begins: What opens each call; empty: the section's own marker does.
        separators: What ends the header. A brace belongs to the arguments.
        ends: What closes a call.
        close: What closes the section.
        name_of: Name and, if the format has one, id from the header.
        json_calls: The layout that takes over where a list comes in the place of a header.
    """

    separators: tuple[str, ...]
    begins: str = ""
    ends: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    name_of: Callable[[str], tuple[str, str | None]] = plain_name
    json_calls: JsonCalls | None = None

    def markers(self) -> tuple[str, ...]:
        """All of its strings."""
        return (self.begins, *self.separators, *self.ends, *self.close)

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        source = calls.source
        yield from source.skip_space()
        if self.json_calls is not None and (yield from source.peek()) == "[":
            yield from self.json_calls.read(calls)
            return
        if self.begins and (yield from source.choose(self.begins)) is None:
            raise Malformed
        while True:
            yield from self._read_call(calls)
            options = tuple(filter(None, (self.begins, *self.close)))
            yield from source.skip_space()
            if not options or (yield from source.choose(*options)) != self.begins:
                return

    def _read_call(self, calls: Calls) -> Reading[None]:
        source = calls.source
        header: list[str] = []
        found = yield from source.until(markers_of(*self.separators), header.append, _HEADER_LIMIT)
        name, call_id = self.name_of("".join(header))
        if found is None or not name:
            raise Malformed
        calls.start(name, call_id)
        if found == "{":
            source.put_back(1)
        yield from source.skip_space()
        yield from copy_arguments(source, calls.arguments)
        yield from source.skip_space()
        if self.ends:
            yield from source.choose(*self.ends)
        calls.end()


class Fields:
    """Arguments that come one by one, told as a JSON object."""

    def __init__(self, calls: Calls, tool: str) -> None:
        self._calls = calls
        self._properties = properties_of(calls.tools, tool)
        self._any = False

    def key(self, name: str) -> None:
        """The next one's name."""
        self._calls.arguments((", " if self._any else "{") + quoted(name) + ": ")
        self._any = True

    def value(self, name: str, stops: Markers, *, trim: bool) -> Reading[str | None]:
        """Its value, up to one of `stops`, which is returned.

        Args:
            trim: A line break at either end belongs to the format.
        """
        types = types_of(self._properties.get(name))
        if types == {"string"}:
            return (yield from self._string(stops, trim))
        parts: list[str] = []
        found = yield from self._calls.source.until(stops, parts.append)
        text = "".join(parts)
        self._calls.arguments(typed(text.removeprefix("\n").removesuffix("\n") if trim else text, types))
        return found

    def _string(self, stops: Markers, trim: bool) -> Reading[str | None]:
        """A string, told as it comes; a last line break waits for what follows."""
        waiting, begun = "", False

        def tell(text: str) -> None:
            nonlocal waiting, begun
            if trim and not begun:
                text = text.removeprefix("\n")
            begun = True
            text = waiting + text
            waiting = "\n" if trim and text.endswith("\n") else ""
            self._calls.arguments(escaped(text.removesuffix(waiting) if waiting else text))

        self._calls.arguments('"')
        found = yield from self._calls.source.until(stops, tell)
        if found is not None:
            self._calls.arguments('"')
        return found

    def end(self) -> None:
        """No more come."""
        self._calls.arguments("}" if self._any else "{}")
        self._calls.end()


@dataclass(frozen=True)
class Tagged:
    """Calls and parameters in tags of their own: `<function=NAME><parameter=KEY>VALUE</parameter></function>`.

    Attributes:
        call, parameter: What comes before and after a name.
        call_end, parameter_end: What closes them.
        close: What closes the section.
        skipped: What may come before a call and says nothing.
        trim: A line break at either end of a value belongs to the format.
    """

    call: tuple[str, str]
    parameter: tuple[str, str]
    call_end: str
    parameter_end: str
    close: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    trim: bool = True

    def markers(self) -> tuple[str, ...]:
        """All of its strings."""
        tags = (self.call[0], self.parameter[0], self.call_end, self.parameter_end)
        return (*tags, *self.close, *self.skipped)

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        source = calls.source
        first = True
        while True:
            yield from source.skip_space()
            found = yield from source.choose(self.call[0], *self.close, *self.skipped)
            if found in self.skipped:
                continue
            if found != self.call[0]:
                if first:
                    raise Malformed
                return
            first = False
            yield from self._read_call(calls)

    def _read_call(self, calls: Calls) -> Reading[None]:
        source = calls.source
        name = yield from _name(source, self.call[1])
        calls.start(name)
        fields = Fields(calls, name)
        stops = markers_of(self.parameter_end, self.parameter[0], self.call_end)
        while True:
            yield from source.skip_space()
            found = yield from source.choose(self.parameter[0], self.call_end)
            if found is None and source.ended:
                raise Malformed
            if found != self.parameter[0]:
                break
            key = yield from _name(source, self.parameter[1])
            fields.key(key)
            found = yield from fields.value(key, stops, trim=self.trim)
            if found is None:
                raise Malformed
            if found != self.parameter_end:
                source.put_back(len(found))
        fields.end()


def _name(source: Source, end: str) -> Reading[str]:
    """A name, up to `end`."""
    parts: list[str] = []
    found = yield from source.until(markers_of(end), parts.append, MAX_NAME)
    name = "".join(parts).strip().strip('"')
    if found is None or not name:
        raise Malformed
    return name


@dataclass(frozen=True)
class KeysAndValues:
    """The name, then `<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>` for each argument (GLM)."""

    key: tuple[str, str]
    value: tuple[str, str]
    close: tuple[str, ...]

    def markers(self) -> tuple[str, ...]:
        """All of its strings."""
        return (*self.key, *self.value, *self.close)

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        source = calls.source
        header: list[str] = []
        found = yield from source.until(markers_of(self.key[0], *self.close), header.append, MAX_NAME)
        name = "".join(header).strip()
        if found is None or not name or not re.fullmatch(r"[^\s<>{}\"]+", name):
            raise Malformed
        calls.start(name)
        fields = Fields(calls, name)
        stops = markers_of(self.value[1], self.key[0], *self.close)
        while found == self.key[0]:
            key = yield from _name(source, self.key[1])
            yield from source.skip_space()
            if (yield from source.choose(self.value[0])) is None:
                raise Malformed
            fields.key(key)
            found = yield from fields.value(key, stops, trim=False)
            if found is None:
                raise Malformed
            if found == self.value[1]:
                yield from source.skip_space()
                found = yield from source.choose(self.key[0], *self.close)
        fields.end()
