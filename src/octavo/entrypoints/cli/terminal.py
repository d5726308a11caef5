"""A conversation in the terminal: reads lines, prints what comes, keeps the history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

Message = dict[str, Any]
# Given the conversation so far, the pieces of the answer.
Answer = Callable[[list[Message]], Iterator[str]]

BOLD, RESET = "\x1b[1m", "\x1b[0m"


def converse(answer: Answer, system_prompt: str | None = None) -> int:
    """Talk until end of input, `/exit` or Ctrl-C at the prompt. Ctrl-C during an answer stops that answer."""
    _enable_line_editing()
    history: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
    if sys.stdin.isatty():
        print("Type a message; /clear forgets the conversation, /exit or Ctrl-D leaves.", file=sys.stderr)
    start = len(history)
    while (line := _read()) is not None:
        if line in ("/exit", "/quit"):
            return 0
        if line == "/clear":
            del history[start:]
            continue
        if line:
            history.append({"role": "user", "content": line})
            history.append({"role": "assistant", "content": print_pieces(answer(history))})
    return 0


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
    prompt = f"{BOLD}> {RESET}" if colored else "> " if sys.stdin.isatty() else ""
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
            import readline  # noqa: F401
        except ImportError:
            return
