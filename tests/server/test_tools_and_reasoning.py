"""Tool calls and reasoning over HTTP: the three faces say the same, as a stream and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.fakes import EOS
from tests.server.folding import folded_message, folded_output, typed_events
from tests.server.harness import Server, both, finish, running

from octavo.entrypoints.openai.answer_forms import AnswerForms
from octavo.entrypoints.openai.args import ServerArgs
from octavo.lib.errors import ConfigError

ANSWER = (
    '<think>Zürich, or Bern?</think>\nLet me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n'
    '</tool_call>\n<tool_call>{"name": "time", "arguments": {}}</tool_call>'
)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "time"}},
]
CHAT = "/v1/chat/completions"
CALLS = [("weather", {"city": "Zürich"}), ("time", {})]


@pytest.fixture(scope="module")
def caller() -> Iterator[Server]:
    """A model that thinks, then calls two tools."""
    args = ServerArgs(tool_call_parser="hermes", reasoning_parser="qwen3", shutdown_timeout=1)
    with running(
        script=[*ANSWER.encode(), EOS], server_args=args, max_model_len=4096, num_blocks=1024
    ) as server:
        yield server


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Weather?"}]
    return {"messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 400} | fields


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    found = message.get("tool_calls") or []
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in found]


def folded(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """A chat stream's message, put together as the openai client does it."""
    message: dict[str, Any] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    _fold_call(message.setdefault("tool_calls", []), *value)
                else:
                    message[key] = value if key == "role" else message.get(key, "") + value
    return message


def _fold_call(calls: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    if "id" in delta:
        assert delta["index"] == len(calls)
        calls.append({"id": delta["id"], "type": delta["type"], "function": dict(delta["function"])})
    else:
        assert set(delta) == {"index", "function"}
        assert set(delta["function"]) == {"arguments"}
        calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]


def test_a24_names_come_once_and_the_finish_in_a_chunk_of_its_own(caller: Server) -> None:
    whole, chunks = both(caller, CHAT, body())
    message = folded(chunks)
    assert calls_of(message) == calls_of(whole["choices"][0]["message"]) == CALLS
    assert finish(chunks) == [whole["choices"][0]["finish_reason"]] == ["tool_calls"]
    (last,) = (c for chunk in chunks for c in chunk["choices"] if c["finish_reason"])
    assert last["delta"] == {}
    named = [
        c for chunk in chunks for choice in chunk["choices"] for c in choice["delta"].get("tool_calls", [])
    ]
    assert [call["index"] for call in named if "id" in call] == [0, 1]


def test_reasoning_comes_under_both_names_and_is_counted(caller: Server) -> None:
    whole, chunks = both(caller, CHAT, body())
    for message in (whole["choices"][0]["message"], folded(chunks)):
        assert message["reasoning"] == message["reasoning_content"] == "Zürich, or Bern?"
        assert message["content"] == "Let me look."
    tokens = len("Zürich, or Bern?</think>".encode())
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": tokens}
    assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": tokens}
    hidden = caller.post(CHAT, body(include_reasoning=False)).json()["choices"][0]["message"]
    assert "reasoning" not in hidden
    assert hidden["content"] == "Let me look."


def test_n_answers_each_have_a_parser(caller: Server) -> None:
    whole, chunks = both(caller, CHAT, body(n=2))
    assert [calls_of(choice["message"]) for choice in whole["choices"]] == [CALLS, CALLS]
    assert finish(chunks, 0) == finish(chunks, 1) == ["tool_calls"]


def test_parallel_tool_calls_false_keeps_the_first(caller: Server) -> None:
    message = caller.post(CHAT, body(parallel_tool_calls=False)).json()["choices"][0]["message"]
    assert calls_of(message) == CALLS[:1]


@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": None}])
def test_without_a_choice_calls_are_text(caller: Server, fields: dict[str, Any]) -> None:
    choice = caller.post(CHAT, body(**fields)).json()["choices"][0]
    assert choice["message"]["content"].endswith(ANSWER[ANSWER.index("Let") :])
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("limit", range(1, len(ANSWER), 11))
def test_a_call_cut_by_the_token_limit_ends_the_same_in_both_modes(caller: Server, limit: int) -> None:
    whole, chunks = both(caller, CHAT, body(max_tokens=limit))
    message, streamed = whole["choices"][0]["message"], folded(chunks)
    assert finish(chunks) == [whole["choices"][0]["finish_reason"]] == ["length"]
    for key in ("content", "reasoning"):
        assert (message.get(key) or "") == (streamed.get(key) or "")
    plain = [[call["function"] for call in one.get("tool_calls") or []] for one in (message, streamed)]
    assert plain[0] == plain[1]


def test_stop_strings_and_calls(caller: Server) -> None:
    whole, chunks = both(caller, CHAT, body(stop=["</tool_call>"]))
    assert calls_of(whole["choices"][0]["message"]) == calls_of(folded(chunks)) == CALLS[:1]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"


def test_responses_have_reasoning_and_function_call_items(caller: Server) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    asked = {"input": "Weather?", "tools": tools, "temperature": 0, "max_output_tokens": 400}
    whole = caller.post("/v1/responses", asked).json()
    streamed = folded_output(typed_events(caller.post("/v1/responses", asked | {"stream": True}).text))
    for output in (whole["output"], streamed):
        assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
        assert output[0]["content"][0]["text"] == "Zürich, or Bern?"
        assert json.loads(output[2]["arguments"]) == {"city": "Zürich"}
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_messages_have_thinking_and_tool_use_blocks(caller: Server) -> None:
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    asked: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "W?"}], "tools": tools}
    asked |= {"max_tokens": 400, "temperature": 0}
    whole = caller.post("/v1/messages", asked).json()
    streamed = folded_message(typed_events(caller.post("/v1/messages", asked | {"stream": True}).text))
    for message in (whole, streamed):
        assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use", "tool_use"]
        assert message["content"][2]["input"] == {"city": "Zürich"}
        assert message["stop_reason"] == "tool_use"


def test_reasoning_is_accepted_back_under_both_names(caller: Server) -> None:
    for name in ("reasoning", "reasoning_content"):
        turn = {"role": "assistant", "content": "x", name: "hm"}
        history = [{"role": "user", "content": "a"}, turn, {"role": "user", "content": "b"}]
        assert caller.post(CHAT, body(messages=history)).status_code == 200


def test_answers_of_tools_are_accepted_back(caller: Server) -> None:
    function = {"name": "weather", "arguments": '{"city": "Bern"}'}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
    ]
    assert caller.post(CHAT, body(messages=history)).status_code == 200
    shown = caller.post("/tokenize", {"messages": history, "tools": TOOLS}).json()["tokens"]
    prompt = bytes(shown).decode()
    assert '"arguments": {"city": "Bern"}' in prompt
    assert "<tool_response>\nrain\n" in prompt
    assert '{"name": "weather", "parameters"' in prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required", "structured_outputs": {"json_object": True}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tool_choice": "required", "tools": None}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].function.name"),
        ({"tools": [{"function": {"name": "f", "parameters": 5}}]}, "tools[0].function.parameters"),
        ({"tools": [TOOLS[0]] * 513}, "tools"),
    ],
)
def test_what_is_wrong_about_tools_is_named(caller: Server, fields: dict[str, Any], param: str) -> None:
    answer = caller.post(CHAT, body(**fields))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_automatic_choice_can_be_turned_off() -> None:
    with running(
        server_args=ServerArgs(enable_auto_tool_choice=False, shutdown_timeout=1), max_model_len=1024
    ) as server:
        answer = server.post(CHAT, body(max_tokens=1))
        assert answer.status_code == 400
        assert "--no-enable-auto-tool-choice" in answer.json()["error"]["message"]
        assert server.post(CHAT, body(max_tokens=1, tool_choice="none")).status_code == 200


def test_a_format_that_nobody_knows_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="hermes"):
        AnswerForms(ServerArgs(tool_call_parser="nope"))
    with pytest.raises(ConfigError, match="qwen3"):
        AnswerForms(ServerArgs(reasoning_parser="nope"))
