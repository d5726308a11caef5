"""The conversation in the terminal: what is remembered, and what a failed turn leaves behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.entrypoints.cli import chat, terminal
from octavo.entrypoints.cli.client import Server
from octavo.lib.errors import InvalidRequestError


class Partner:
    """Answers `echo N` and keeps what it was shown; refuses the word `fail`."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, history: list[dict[str, Any]]) -> Iterator[str]:
        self.seen.append([message["content"] for message in history])
        if history[-1]["content"] == "fail":
            raise InvalidRequestError("too long")
        yield from ("echo ", str(len(history)))


def converse(lines: list[str], monkeypatch: pytest.MonkeyPatch, *, terminal_: bool = True) -> Partner:
    """Type `lines`, then end the input."""
    typed = iter(lines)

    def read(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal_, raising=False)
    partner = Partner()
    assert terminal.converse(partner) == 0
    return partner


def test_help_is_for_the_person_not_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert converse(["/help"], monkeypatch).seen == []
    assert capsys.readouterr().err.count("/clear forgets") == 2


def test_a_failed_turn_is_told_and_forgotten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partner = converse(["one", "fail", "two"], monkeypatch)
    assert partner.seen[-1] == ["one", "echo 1", "two"]
    assert "octavo: too long" in capsys.readouterr().err


def test_in_a_script_a_failed_turn_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError):
        converse(["fail"], monkeypatch, terminal_=False)


def test_figures_are_printed_but_no_part_of_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        {"choices": [{"delta": {"content": "Paris"}}]},
        {"choices": [], "usage": {"completion_tokens": 3}},
    ]
    monkeypatch.setattr(Server, "stream", lambda *_: iter(events))
    args = argparse.Namespace(stats=True, max_tokens=None, temperature=None)
    pieces = chat._pieces(Server("http://x/v1", None, "m"), [], args)
    assert terminal.print_pieces(pieces) == "Paris"
    assert "3 tokens" in capsys.readouterr().out
