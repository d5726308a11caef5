"""`/v1/messages`: one answer in both modes, Anthropic's shapes for answers, errors and keys."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.folding import folded_message, typed_events
from tests.server.harness import Server, running

PATH = "/v1/messages"
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}


def body(**fields: Any) -> dict[str, Any]:
    return {
        "model": "fake",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 12,
        "temperature": 0,
    } | fields


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Without what is new for each request; whether tokens came from the cache is too."""
    usage = message["usage"]
    inputs = usage["input_tokens"] + usage["cache_read_input_tokens"]
    return message | {"id": "", "usage": [inputs, usage["output_tokens"]]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]},
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"temperature": 1, "seed": 3, "top_k": 5, "top_p": 0.9, "metadata": {"user_id": "u"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "service_tier": "auto"},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "text", "text": "I ask"},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "text", "text": "42"}],
                        },
                        {"type": "text", "text": "so?"},
                    ],
                },
            ]
        },
    ],
)
def test_a_stream_folds_to_the_whole_message(server: Server, fields: dict[str, Any]) -> None:
    whole = server.post(PATH, body(**fields))
    stream = server.post(PATH, body(stream=True, **fields))
    assert whole.status_code == stream.status_code == 200, whole.text + stream.text
    message, folded = whole.json(), folded_message(typed_events(stream.text))
    assert plain(folded) == plain(message)
    assert message["type"] == "message"
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] == 12
    count_fields = ("model", "messages", "system", "tools", "tool_choice", "thinking")
    counted = server.post(
        f"{PATH}/count_tokens", {k: v for k, v in body(**fields).items() if k in count_fields}
    )
    assert counted.json() == {"input_tokens": plain(message)["usage"][0]}


def test_ends_and_stop_sequences() -> None:
    with running(script=[*b"one END two", 256]) as server:
        ended = server.post(PATH, body(max_tokens=50)).json()
        assert (ended["stop_reason"], ended["content"]) == (
            "end_turn",
            [{"type": "text", "text": "one END two"}],
        )
        stopped = server.post(PATH, body(max_tokens=50, stop_sequences=["END"])).json()
        assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "END")
        assert stopped["content"][0]["text"] == "one "
        again = server.post(PATH, body()).json()
        assert again["usage"]["cache_read_input_tokens"] + again["usage"]["input_tokens"] == len(
            "[user]hello\n[assistant]"
        )


def test_an_assistant_turn_at_the_end_is_continued(server: Server) -> None:
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well"}]
    counted = server.post(f"{PATH}/count_tokens", {"model": "fake", "messages": turns})
    assert counted.json() == {"input_tokens": len("[user]hello\n[assistant]well")}
    assert server.post(PATH, body(messages=turns)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "kind", "word"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
        ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
        ({"max_tokens": 10**6}, 400, "invalid_request_error", "max_tokens"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        (
            {"messages": [{"role": "system", "content": "x"}]},
            400,
            "invalid_request_error",
            "messages[0].role",
        ),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "invalid_request_error", "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            501,
            "invalid_request_error",
            "image",
        ),
        ({"temperature": 1.5}, 400, "invalid_request_error", "temperature"),
        ({"stop_sequences": ["x"] * 65}, 400, "invalid_request_error", "stop_sequences"),
        ({"stop_sequences": [""]}, 400, "invalid_request_error", "stop_sequences"),
        ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error", "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
            400,
            "invalid_request_error",
            "'g'",
        ),
        ({"tools": [{"type": "web_search_1"}]}, 501, "invalid_request_error", "tools[0]"),
        ({"tools": [{"name": "f"}]}, 400, "invalid_request_error", "tools[0].input_schema"),
        ({"mcp_servers": [{"url": "x"}]}, 501, "invalid_request_error", "mcp_servers"),
        ({"model": "other"}, 404, "not_found_error", "other"),
        ({"typo": 1}, 400, "invalid_request_error", "typo"),
    ],
)
def test_errors_have_anthropics_shape(
    server: Server, fields: dict[str, Any], status: int, kind: str, word: str
) -> None:
    answer = server.post(PATH, body(**fields))
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert (error["type"], error["error"]["type"]) == ("error", kind)
    assert word in error["error"]["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_what_lies_around_the_handlers_speaks_anthropic_too() -> None:
    with running(api_keys=("key",)) as server:
        refused = server.post(PATH, body())
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert server.post(PATH, body(), **{"x-api-key": "other"}).status_code == 401
        assert server.post(PATH, body(), **{"x-api-key": "key"}).status_code == 200
        assert server.get("/v1/models", **{"x-api-key": "key"}).status_code == 200
        assert server.post(PATH, body(), Authorization="Bearer key").status_code == 200
        wrong = {"x-api-key": "key", "authorization": "Bearer other"}
        assert server.post(PATH, body(), **wrong).status_code == 401
        assert server.get(PATH, **{"x-api-key": "key"}).json()["type"] == "error"
        broken = server.client.post(
            PATH, content="{", headers={"x-api-key": "key", "content-type": "application/json"}
        )
        assert broken.json()["error"]["type"] == "invalid_request_error"
        other = server.post("/v1/chat/completions", {}, **{"x-api-key": "key"})
        assert "type" not in other.json()


def test_a_stream_that_breaks_ends_with_an_error_event() -> None:
    with running(script=[*b"ab", 903]) as server:
        events = typed_events(server.post(PATH, body(stream=True)).text)
        assert events[0]["type"] == "message_start"
        assert events[-1]["type"] == "error"
        assert events[-1]["error"]["type"] in ("overloaded_error", "api_error")
