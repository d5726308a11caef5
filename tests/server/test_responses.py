"""`/v1/responses`: one answer in every mode (case A93), state, background, limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.server.folding import folded_output, typed_events, without_ids
from tests.server.harness import Server, running, until

from octavo.entrypoints.openai.args import ServerArgs

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def respond(server: Server, text: Any = "tell me a story", **fields: Any) -> dict[str, Any]:
    answer = server.post(PATH, {"input": text, "temperature": 0, "max_output_tokens": 12} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def events_of(server: Server, text: Any = "tell me a story", **fields: Any) -> list[dict[str, Any]]:
    body = {"input": text, "temperature": 0, "max_output_tokens": 12, "stream": True} | fields
    answer = server.post(PATH, body)
    assert answer.status_code == 200, answer.text
    return typed_events(answer.text)


def text_of(response: dict[str, Any]) -> str:
    return "".join(item["content"][0]["text"] for item in response["output"])


def test_a93_the_token_limit_makes_a_response_incomplete(server: Server) -> None:
    response = respond(server, max_output_tokens=10)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert len(text_of(response)) == 10
    assert response["usage"]["output_tokens"] == 10
    assert response["usage"]["total_tokens"] == response["usage"]["input_tokens"] + 10


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"instructions": "be brief", "metadata": {"a": "b"}},
        {"tools": [TOOL], "parallel_tool_calls": False},
        {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
        {"temperature": 1.0, "seed": 4, "top_p": 0.9},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
        {"stop": "zz", "min_tokens": 2},
    ],
)
def test_a_stream_folds_to_the_whole_response(server: Server, fields: dict[str, Any]) -> None:
    fields = {"text": "say"} | {("text" if key == "input" else key): value for key, value in fields.items()}
    whole, events = respond(server, **fields), events_of(server, **fields)
    final = events[-1]["response"]
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    assert [e["type"] for e in events].count("response.incomplete") == 1
    assert folded_output(events) == final["output"] != []
    assert without_ids(final["output"]) == without_ids(whole["output"])
    changing = {"id", "created_at", "output", "usage"}
    assert {k: v for k, v in final.items() if k not in changing} == {
        k: v for k, v in whole.items() if k not in changing
    }
    assert final["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == 12
    assert all(e["response"]["id"] == final["id"] for e in events if "response" in e)
    kept = server.get(f"{PATH}/{final['id']}").json()
    assert kept == final


def test_log_probabilities_are_of_all_tokens(server: Server) -> None:
    (item,) = respond(server, top_logprobs=2)["output"]
    part = item["content"][0]
    assert "".join(entry["token"] for entry in part["logprobs"]) == part["text"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])


def test_a_conversation_goes_on_from_the_store() -> None:
    with running(script=b"ok<eos>"[:2] + bytes([])) as server:
        first = respond(server, "one", instructions="S", max_output_tokens=2)
        second = respond(server, "two", previous_response_id=first["id"], max_output_tokens=2)
        # The template writes [role]text\n; instructions are not carried over.
        told = "[user]one\n[assistant]ok\n[user]two\n[assistant]"
        assert second["usage"]["input_tokens"] == len(told)
        same = respond(
            server,
            [
                {"role": "user", "content": "one"},
                *first["output"],
                {"role": "user", "content": "two"},
            ],
            max_output_tokens=2,
        )
        assert same["usage"]["input_tokens"] == len(told)
        assert same["usage"]["input_tokens_details"]["cached_tokens"] > 0
        listed = server.get(f"{PATH}/{second['id']}/input_items").json()
        assert [item["content"][0]["text"] for item in listed["data"]] == ["two"]
        assert server.client.delete(f"{PATH}/{first['id']}").json()["deleted"] is True
        lost = server.post(PATH, {"input": "three", "previous_response_id": second["id"]})
        assert lost.status_code == 404
        assert lost.json()["error"]["param"] == "previous_response_id"


def test_store_false_keeps_nothing_and_lists_are_paged(server: Server) -> None:
    unseen = respond(server, store=False)
    assert unseen["store"] is False
    assert server.get(f"{PATH}/{unseen['id']}").status_code == 404
    items = [{"role": "user", "content": str(n)} for n in range(5)]
    url = f"{PATH}/{respond(server, items)['id']}/input_items"
    first = server.get(f"{url}?limit=2&order=asc").json()
    assert [item["content"] for item in first["data"]] == ["0", "1"]
    assert first["has_more"] is True
    rest = server.get(f"{url}?order=asc&after={first['last_id']}").json()
    assert [item["content"] for item in rest["data"]] == ["2", "3", "4"]
    assert rest["has_more"] is False
    assert server.get(f"{url}?after=nothing").status_code == 400
    assert server.get(f"{url}?limit=0").status_code == 400


def test_responses_in_a_file_outlive_the_server(tmp_path: Any) -> None:
    args = ServerArgs(shutdown_timeout=1, responses_store=str(tmp_path / "r.db"))
    with running(server_args=args) as server:
        first = respond(server)
    with running(server_args=args) as server:
        assert server.get(f"{PATH}/{first['id']}").json() == first
        assert respond(server, "and", previous_response_id=first["id"])["status"] == "incomplete"


def test_background_responses_are_followed_cancelled_and_free_the_engine() -> None:
    with running(step_seconds=0.01) as server:
        queued = respond(server, background=True, max_output_tokens=400)
        assert queued["status"] == "queued"
        url = f"{PATH}/{queued['id']}"
        until(lambda: server.metric("num_requests_running") == 1)
        until(lambda: server.get(url).json()["status"] == "in_progress")
        early = server.post(PATH, {"input": "x", "previous_response_id": queued["id"]})
        assert early.status_code == 400
        ended = server.post(f"{url}/cancel", {}).json()
        assert ended["status"] == "cancelled"
        assert ended == server.get(url).json() == server.post(f"{url}/cancel", {}).json()
        until(lambda: server.metric("num_requests_running") == 0)
        assert server.engine.num_open == 0
        short = respond(server, background=True, max_output_tokens=3)["id"]
        until(lambda: server.get(f"{PATH}/{short}").json()["status"] == "incomplete")
        plain = respond(server, max_output_tokens=1)["id"]
        assert server.post(f"{PATH}/{plain}/cancel", {}).status_code == 400


def test_a_background_stream_goes_on_without_its_client() -> None:
    with running(step_seconds=0.01) as server:
        body = {"input": "x", "background": True, "stream": True, "max_output_tokens": 30, "temperature": 0}
        with server.client.stream("POST", PATH, json=body) as answer:
            lines = answer.iter_lines()
            head = json.loads([next(lines) for _ in range(2)][1].removeprefix("data: "))
        url = f"{PATH}/{head['response']['id']}"
        assert head["response"]["status"] == "queued"
        followed = typed_events(server.get(f"{url}?stream=true&starting_after=0").text)
        assert [e["type"] for e in followed[:2]] == ["response.queued", "response.in_progress"]
        assert followed[-1]["type"] == "response.incomplete"
        again = typed_events(server.get(f"{url}?stream=true").text)
        assert again[1:] == followed
        assert folded_output(again) == server.get(url).json()["output"]
        assert server.get(f"{PATH}/{respond(server)['id']}?stream=true").status_code == 400


def test_a_shutdown_waits_for_background_responses(tmp_path: Any) -> None:
    args = ServerArgs(shutdown_timeout=20, responses_store=str(tmp_path / "r.db"))
    with running(server_args=args, step_seconds=0.01) as server:
        name = respond(server, background=True, max_output_tokens=30)["id"]
        server.stop()
        until(lambda: server.engine.num_open == 0)
        archive = server.state.responses
        until(lambda: archive.jobs.get(name) is None)
    with running(server_args=args) as server:
        assert server.get(f"{PATH}/{name}").json()["usage"]["output_tokens"] == 30


def test_truncation_drops_the_oldest_turns_only_if_asked() -> None:
    with running(max_model_len=96) as server:
        items = [{"role": role, "content": "x" * 12} for role in ("user", "assistant") * 4]
        items.append({"role": "user", "content": "last"})
        whole = server.post(PATH, {"input": items, "max_output_tokens": 8})
        assert whole.status_code == 400
        assert "96" in whole.json()["error"]["message"]
        cut = respond(server, items, instructions="S", truncation="auto", max_output_tokens=8)
        assert 60 < cut["usage"]["input_tokens"] <= 96 - 8
        hopeless = server.post(PATH, {"input": "y" * 200, "truncation": "auto"})
        assert hopeless.status_code == 400


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": ""}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": [{"role": "user", "content": "x"}] * 5000}, 400, "input"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, 501, "input[0].type"),
        ({"model": "other"}, 404, "model"),
        ({"conversation": "conv_1"}, 501, "conversation"),
        ({"prompt": {"id": "p"}}, 501, "prompt"),
        ({"n": 2}, 501, "n"),
        ({"background": True, "store": False}, 400, "background"),
        ({"max_output_tokens": 0}, 400, "max_output_tokens"),
        ({"max_output_tokens": 10**6}, 400, "max_output_tokens"),
        ({"temperature": -1}, 400, "temperature"),
        ({"top_logprobs": 21}, 400, "top_logprobs"),
        ({"include": ["everything"]}, 400, "include"),
        ({"metadata": {str(n): "" for n in range(17)}}, 400, "metadata"),
        ({"metadata": {"a": "b" * 600}}, 400, "metadata"),
        ({"tools": [{"type": "web_search"}]}, 501, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, 400, "tools[0].name"),
        ({"tools": [TOOL | {"parameters": 5}]}, 400, "tools[0].parameters"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, 400, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp"}}, 501, "tool_choice"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, 400, "text.format.schema"),
        ({"previous_response_id": "resp_none"}, 404, "previous_response_id"),
        ({"reasoning": {"effort": "enormous"}}, 400, "reasoning"),
        ({"typo": 1}, 400, "typo"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    server: Server, fields: dict[str, Any], status: int, param: str
) -> None:
    answer = server.post(PATH, {"input": "x"} | fields)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert server.engine.num_open == 0


def test_unknown_ids_are_not_found(server: Server) -> None:
    for call in (
        server.get(f"{PATH}/resp_x"),
        server.get(f"{PATH}/resp_x/input_items"),
        server.post(f"{PATH}/resp_x/cancel", {}),
        server.client.delete(f"{PATH}/resp_x"),
    ):
        assert call.status_code == 404
        assert "resp_x" in call.json()["error"]["message"]
