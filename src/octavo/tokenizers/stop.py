"""Stop strings: where an answer ends by its text, whatever the borders of tokens and chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from octavo.lib.errors import InvalidRequestError


class StopStrings:
    """Looks for stop strings in a text that comes in pieces, and holds back only what may still become one.

    The answer ends at the first letter with which any stop string is complete; if several end there, the longest
    counts. So the outcome does not depend on how the text was cut into pieces. The search is that of Aho and
    Corasick (1975): its state is the longest end of the text that begins a stop string, which is what is held back.

    Args:
        stops: Stop strings; none of them empty.
        include: Whether the stop string itself belongs to the answer.

    Attributes:
        matched: The stop string that ended the answer, once one has.

    Raises:
        InvalidRequestError: A stop string is empty.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        if "" in stops:
            raise InvalidRequestError("A stop string must not be empty.", param="stop")
        self.matched: str | None = None
        self._include = include
        self._held = ""
        self._state = 0
        self._active = bool(stops)
        self._search = _automaton(tuple(stops))

    def push(self, text: str) -> str:
        """Add text; returns what is settled by it. After a match, nothing more is."""
        if not self._active:
            return text
        if self.matched is not None:
            return ""
        search = self._search
        buffer = self._held + text
        for at in range(len(self._held), len(buffer)):
            self._state = search.step(self._state, buffer[at])
            stop = search.stop[self._state]
            if stop is not None:
                self.matched, self._held = stop, ""
                return buffer[: at + 1] if self._include else buffer[: at + 1 - len(stop)]
        settled = len(buffer) if self._include else len(buffer) - search.depth[self._state]
        self._held = buffer[settled:]
        return buffer[:settled]

    def finish(self) -> str:
        """No more text: returns what was held back."""
        held, self._held, self._state = self._held, "", 0
        return held


class _Automaton:
    """The search for a set of stop strings. Built once, then only read: all answers to a request share it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [0]
        self.depth = [0]
        self.stop: list[str | None] = [None]
        for stop in stops:
            self._insert(stop)
        self._link()

    def step(self, state: int, letter: str) -> int:
        """The state after one more letter."""
        while state and letter not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(letter, 0)

    def _insert(self, stop: str) -> None:
        node = 0
        for letter in stop:
            if letter not in self._next[node]:
                self._next[node][letter] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[node] + 1)
                self.stop.append(None)
            node = self._next[node][letter]
        self.stop[node] = stop

    def _link(self) -> None:
        """Link each state to the longest proper end of it that is a state too, and take over its stop string."""
        waiting = deque(self._next[0].values())
        while waiting:
            node = waiting.popleft()
            self.stop[node] = self.stop[node] or self.stop[self._fallback[node]]
            for letter, child in self._next[node].items():
                self._fallback[child] = self.step(self._fallback[node], letter)
                waiting.append(child)


@lru_cache(maxsize=16)
def _automaton(stops: tuple[str, ...]) -> _Automaton:
    return _Automaton(stops)
