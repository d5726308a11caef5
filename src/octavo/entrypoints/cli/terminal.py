"""A conversation in the terminal: reads lines, prints what comes, keeps the history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from octavo.lib.errors import OctavoError

Message = dict[str, Any]
# Given the conversation so far, the pieces of the answer.
Answer = Callable[[list[Message]], Iterator[str]]

BOLD, RESET = "\x1b[1m", "\x1b[0m"
HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


def converse(answer: Answer, system_prompt: str | None = None) -> int:
    """Talk until end of input, `/exit` or Ctrl-C at the prompt. Ctrl-C during an answer stops that answer."""
    _enable_line_editing()
    history: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
    if sys.stdin.isatty():
        print(f"Type a message. {HELP}", file=sys.stderr)
    start = len(history)
    while (line := _read()) is not None:
        if line in ("/exit", "/quit"):
            return 0
        if line == "/clear":
            del history[start:]
            continue
        if line == "/help":
            print(HELP, file=sys.stderr)
        elif line:
            _take_turn(answer, history, line)
    return 0


def _take_turn(answer: Answer, history: list[Message], line: str) -> None:
    """Ask and remember. At a terminal a failed turn is told and forgotten: the conversation before it still holds."""
    history.append({"role": "user", "content": line})
    try:
        history.append({"role": "assistant", "content": print_pieces(answer(history))})
    except OctavoError as error:
        if not sys.stdin.isatty():
            raise
        history.pop()
        print(f"octavo: {error.message}", file=sys.stderr)


def print_pieces(pieces: Iterator[str]) -> str:
    """Print text as it comes; returns all of it."""
    parts: list[str] = []
    try:
        for piece in pieces:
            parts.append(piece)
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.write(" [stopped]")
    print()
    return "".join(parts)


def _read() -> str | None:
    colored = sys.stdin.isatty() and sys.stdout.isatty()
    # Between \x01 and \x02 readline counts no columns; else long lines wrap at the wrong place.
    prompt = f"\x01{BOLD}\x02> \x01{RESET}\x02" if colored else "> " if sys.stdin.isatty() else ""
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None


def _enable_line_editing() -> None:
    """Arrow keys and history, where the platform has readline."""
    if sys.stdin.isatty():
        try:
            import readline
        except ImportError:
            return
        # Lines pasted together are one message.
        readline.parse_and_bind("set enable-bracketed-paste on")
