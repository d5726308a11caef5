"""Answers as a row of messages, each with a header that says what it is (the harmony format of gpt-oss).

`<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{...}<|call|>`
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from octavo.entrypoints.parsers.calls import Calls, copy_arguments
from octavo.entrypoints.parsers.json_text import MAX_NAME
from octavo.entrypoints.parsers.source import Malformed, Reading, Source, markers_of

_HEADER_LIMIT = 4 * MAX_NAME
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class Messages(Calls, Protocol):
    """Where messages are told."""

    has_tools: bool
    """Whether there is anything to call."""

    def content(self) -> Callable[[str], object]:
        """A message to the user begins; takes its text."""
        ...

    def thought(self) -> Callable[[str], object]:
        """A message of reasoning begins; takes its text."""
        ...

    def said(self) -> None:
        """The message has ended."""
        ...


@dataclass(frozen=True)
class Channels:
    """Attributes:
    start: Opens a message.
    channel: Comes before the channel's name.
    message: Ends the header.
    ends: Any of them ends a message.
    thought: The channel of reasoning.
    functions: What a recipient that is a tool begins with.
    """

    start: str
    channel: str
    message: str
    ends: tuple[str, ...]
    thought: str
    functions: str

    def markers(self) -> tuple[str, ...]:
        """All of its strings."""
        return (self.start, self.channel, self.message, *self.ends)

    def read(self, messages: Messages) -> Reading[None]:
        """Read the whole answer."""
        source = messages.source
        while True:
            if (yield from self._at_header(source)):
                more = yield from self._message(messages)
            else:
                # A prompt may have written the header, and a constraint may leave none.
                more = yield from self._body(source, messages.content())
                messages.said()
            if not more:
                return

    def _at_header(self, source: Source) -> Reading[bool]:
        """Whether a header comes next."""
        yield from source.skip_space()
        found = yield from source.choose(self.start, self.channel, self.message, "to=")
        source.put_back(len(found or ""))
        return found is not None

    def _message(self, messages: Messages) -> Reading[bool]:
        """Read one message; False: the answer has ended."""
        source = messages.source
        parts: list[str] = []
        stops = markers_of(self.message, *self.ends)
        try:
            found = yield from source.until(stops, parts.append, _HEADER_LIMIT)
        except Malformed:
            return True
        if found != self.message:
            return found is not None
        header = "".join(parts)
        recipient = _RECIPIENT.search(header)
        name = recipient.group(1).removeprefix(self.functions) if recipient else ""
        if recipient and messages.has_tools and recipient.group(1) == self.functions + name:
            return (yield from self._call(messages, name[:MAX_NAME]))
        # What is for somebody else than the user (a tool that nobody offered) is not for the user to read.
        hidden = recipient is not None or self.channel + self.thought in header
        more = yield from self._body(source, messages.thought() if hidden else messages.content())
        messages.said()
        return more

    def _call(self, messages: Messages, name: str) -> Reading[bool]:
        source = messages.source
        messages.start(name)
        yield from source.skip_space()
        with contextlib.suppress(Malformed):
            yield from copy_arguments(source, messages.arguments)
            messages.end()
        return (yield from self._body(source, lambda _: None))

    def _body(self, source: Source, tell: Callable[[str], object]) -> Reading[bool]:
        """The rest of a message; False: the answer has ended. One that is not closed ends where the next one begins."""
        found = yield from source.until(markers_of(self.start, self.channel, *self.ends), tell)
        if found in (self.start, self.channel):
            source.put_back(len(found))
        return found is not None
