"""Stop strings against a plain search of the whole text, whatever the pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers import StopStrings

STEADY = settings(deadline=None, derandomize=True, database=None)
letters = st.text(alphabet="abc", max_size=12)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def plain_search(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Where the first stop string to be complete begins, and which it is; the longest of those that end there."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return end - len(longest), longest
    return None


def held_back(text: str, stops: list[str]) -> int:
    """The longest end of the text that a stop string begins with."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


@STEADY
@given(pieces=st.lists(letters, max_size=8), stops=stop_lists, include=st.booleans())
def test_it_equals_the_plain_search(pieces: list[str], stops: list[str], include: bool) -> None:
    text = "".join(pieces)
    watch = StopStrings(stops, include)
    got = "".join(watch.push(piece) for piece in pieces) + watch.finish()
    found = plain_search(text, stops)
    if found is None:
        assert (got, watch.matched) == (text, None)
    else:
        at, stop = found
        assert (got, watch.matched) == (text[: at + len(stop) * include], stop)


@STEADY
@given(pieces=st.lists(letters, max_size=8), stops=stop_lists)
def test_it_holds_back_no_more_than_may_become_a_stop(pieces: list[str], stops: list[str]) -> None:
    watch = StopStrings(stops)
    read = given_out = ""
    for piece in pieces:
        read += piece
        given_out += watch.push(piece)
        if watch.matched is not None:
            return
        assert given_out == read[: len(read) - held_back(read, stops)]


def test_no_piece_of_the_stop_is_given_out() -> None:
    watch = StopStrings(["DEFGHIJ"])
    pieces = [watch.push(piece) for piece in ("ABC ", "DEF", "GH", "IJ tail", "more")]
    assert pieces == ["ABC ", "", "", "", ""]
    assert watch.matched == "DEFGHIJ"


def test_a_false_start_is_given_out_as_soon_as_it_is_one() -> None:
    watch = StopStrings(["DEFGHIJ"])
    assert [watch.push(piece) for piece in ("DEF", "GX")] == ["", "DEFGX"]
    assert (watch.push("DE"), watch.finish(), watch.matched) == ("", "DE", None)


def test_with_the_stop_included_nothing_is_held_back() -> None:
    watch = StopStrings(["end"], include=True)
    assert [watch.push(piece) for piece in ("an e", "nd of")] == ["an e", "nd"]
    assert watch.matched == "end"


def test_without_stop_strings_text_passes() -> None:
    assert StopStrings([]).push("text") == "text"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="must not be empty"):
        StopStrings(["a", ""])
