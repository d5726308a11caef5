"""Streams folded to the whole object, by the events' deltas alone, as a client does it."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]


def typed_events(text: str) -> list[Event]:
    """The events of a stream whose events are named by their type."""
    events = []
    for block in text.split("\n\n"):
        if block:
            name, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            events.append(event)
    return events


def folded_output(events: list[Event]) -> list[dict[str, Any]]:
    """The output items of a Responses stream; checks that events come in order and agree with each other."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    output: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(output)
            assert all(item["status"] != "in_progress" for item in output)
            output.append(event["item"])
        elif "output_index" in event:
            _apply(output[event["output_index"]], kind, event)
    return output


def _apply(item: dict[str, Any], kind: str, event: Event) -> None:
    assert item["status"] == "in_progress"
    if kind == "output_item.done":
        assert item | {"status": event["item"]["status"]} == event["item"]
        item["status"] = event["item"]["status"]
        return
    assert event["item_id"] == item["id"]
    if kind == "content_part.added":
        assert item["content"] == []
        item["content"].append(event["part"])
    elif kind == "content_part.done":
        assert item["content"] == [event["part"]]
    elif kind == "function_call_arguments.delta":
        item["arguments"] += event["delta"]
    elif kind == "function_call_arguments.done":
        assert item["arguments"] == event["arguments"]
    elif kind in ("output_text.delta", "reasoning_text.delta"):
        item["content"][0]["text"] += event["delta"]
        if "logprobs" in event:
            item["content"][0]["logprobs"] += event["logprobs"]
    elif kind in ("output_text.done", "reasoning_text.done"):
        assert item["content"][0]["text"] == event["text"]
        assert item["content"][0].get("logprobs") == event.get("logprobs")
    else:
        raise AssertionError(f"no such event: {kind}")


def without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items without what is new for each request."""
    return [{key: value for key, value in item.items() if key != "id"} for item in output]


def folded_message(events: list[Event]) -> dict[str, Any]:
    """The message of an Anthropic stream; checks the order of its events."""
    assert events[0]["type"] == "message_start"
    assert events[-1] == {"type": "message_stop"}
    message: dict[str, Any] = dict(events[0]["message"])
    open_index, arguments = None, ""
    for event in events[1:-1]:
        match event["type"]:
            case "content_block_start":
                assert open_index is None
                open_index, arguments = event["index"], ""
                assert open_index == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == open_index
                (field,) = set(event["delta"]) - {"type"}
                if field == "partial_json":
                    arguments += event["delta"][field]
                else:
                    message["content"][-1][field] += event["delta"][field]
            case "content_block_stop":
                assert event["index"] == open_index
                if message["content"][-1]["type"] == "tool_use":
                    try:
                        message["content"][-1]["input"] = json.loads(arguments or "{}")
                    except ValueError:  # cut short
                        assert events[-2]["delta"]["stop_reason"] == "max_tokens"
                open_index = None
            case "message_delta":
                assert open_index is None
                message |= event["delta"] | {"usage": event["usage"]}
            case other:
                assert other == "ping"
    return message
