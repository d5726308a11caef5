"""Items become the messages that a chat template expects."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.entrypoints.openai.responses.items import messages_of
from octavo.lib.errors import InvalidRequestError, OctavoError

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_one_turn_of_several_items_is_one_message() -> None:
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I ask"}],
    }
    second = CALL | {"call_id": "c2", "name": "g"}
    items = [user("hi"), reasoning, said, CALL, second, OUTPUT, OUTPUT | {"call_id": "c2"}, user("so?")]
    messages = messages_of(items)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    turn = messages[1]
    assert (turn["reasoning_content"], turn["content"]) == ("hm", "I ask")
    assert [call["id"] for call in turn["tool_calls"]] == ["c1", "c2"]
    assert [message["name"] for message in messages[2:4]] == ["f", "g"]


def test_leading_system_messages_become_one() -> None:
    items = [{"role": "developer", "content": "B"}, {"role": "system", "content": "C"}, user("hi")]
    assert messages_of(items, "A") == [{"role": "system", "content": "A\n\nB\n\nC"}, user("hi")]


def test_history_comes_before_the_input_and_after_the_instructions() -> None:
    history = [user("1"), {"type": "message", "role": "assistant", "content": "2"}, user("3"), CALL]
    messages = messages_of([OUTPUT], "S", history)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"type": "item_reference", "id": "x"}, "input[0].type"),
        ({"type": "computer_call"}, "input[0].type"),
        ({"type": 5}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [5]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0]"),
        (CALL | {"arguments": "{"}, "input[0].arguments"),
        (CALL | {"arguments": "[1]"}, "input[0].arguments"),
        (CALL | {"arguments": "[" * 100_000}, "input[0].arguments"),
        (CALL | {"name": None}, "input[0].name"),
        (OUTPUT, "input[0].call_id"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(item: dict[str, Any], place: str) -> None:
    with pytest.raises(OctavoError) as refusal:
        messages_of([item])
    assert refusal.value.param == place
    assert place in refusal.value.message


def test_items_without_any_message_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no message"):
        messages_of([{"type": "reasoning", "summary": []}])
