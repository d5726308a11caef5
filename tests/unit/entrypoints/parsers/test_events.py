"""Events add up to an answer."""

from __future__ import annotations

from octavo.entrypoints.parsers.events import (
    ContentDelta,
    Event,
    ParsedAnswer,
    PassThrough,
    ReasoningDelta,
    ToolCall,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    collect,
    merged,
)

EVENTS: list[Event] = [
    ReasoningDelta("th"), ReasoningDelta("ink"), ContentDelta("a"), ToolCallStart(0, "x", "f"),
    ToolCallArguments(0, '{"a"'), ToolCallArguments(0, ": 1}"), ToolCallEnd(0), ToolCallStart(1, "y", "g"), ContentDelta("b"),
]  # fmt: skip


def test_collect_folds_events_to_an_answer() -> None:
    calls = (ToolCall("x", "f", '{"a": 1}'), ToolCall("y", "g", ""))
    assert collect(EVENTS) == ParsedAnswer("ab", "think", calls)
    assert collect([]) == ParsedAnswer()


def test_merging_neighbours_changes_nothing_in_the_fold() -> None:
    assert collect(merged(EVENTS)) == collect(EVENTS)
    assert merged(EVENTS)[0] == ReasoningDelta("think")
    assert merged(merged(EVENTS)) == merged(EVENTS)


def test_without_a_format_all_text_is_content() -> None:
    parser = PassThrough()
    assert [*parser.feed("a", [1]), *parser.feed("", [2]), *parser.finish()] == [ContentDelta("a")]
