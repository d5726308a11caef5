"""What a client can get wrong, and what it is told (cases A03, A05, A07, A40, A66, A68)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from pydantic import ValidationError
from tests.server.harness import Server, running, until

from octavo.entrypoints.openai.protocol.completion import CompletionRequest


def error(answer: Any, status: int = 400) -> dict[str, Any]:
    """The error object of an answer that must have this status."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return body["error"]


def test_a03_over_context_names_the_true_limit_the_prompt_and_max_tokens() -> None:
    with running(max_model_len=256) as small:
        found = error(small.complete([97] * 20, max_tokens=245))
        assert found["param"] == "max_tokens"
        assert {"256", "20", "245"} <= set(re.findall(r"\d+", found["message"]))
        assert small.complete([97] * 20, max_tokens=236).json()["usage"]["total_tokens"] == 256


def test_a05_openai_client_raises_the_matching_class_with_the_message(server: Server) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    messages: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.NotFoundError, match="nope"):
        client.chat.completions.create(model="nope", messages=messages)
    error(server.chat(model="nope"), 404)
    for wrong in ({"temperature": "hot"}, {"n": 0}):
        assert error(server.chat(**wrong))["param"] == next(iter(wrong))
        with pytest.raises(openai.BadRequestError, match=next(iter(wrong))):
            client.chat.completions.create(model="fake", messages=messages, **wrong)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"messages": []}),
        ("/tokenize", {}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10**9]}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {"messages": "hi"}),
        ("/v1/chat/completions", {"messages": [7]}),
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", []),
        ("/v1/completions", {"prompt": "x", "max_tokens": -1}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": [""]}),
        ("/v1/completions", {"prompt": [[]]}),
        ("/v1/completions", {"prompt": [97, 100000]}),
        ("/v1/completions", {"prompt": "x", "logprobs": 21}),
        ("/v1/completions", {"prompt": "x", "top_p": 0}),
        ("/v1/completions", {"prompt": "x", "stop": [""]}),
        ("/v1/completions", {"prompt": "x", "stream_options": {"include_usage": True}}),
        ("/v1/completions", {"prompt": "x", "stream": True, "prompt_logprobs": 1}),
        ("/v1/completions", {"prompt": "x", "max_token": 5}),
    ],
)
def test_a07_a66_malformed_bodies_are_refused_and_the_server_lives(
    server: Server, path: str, body: Any
) -> None:
    error(server.post(path, body))
    assert server.complete("x", max_tokens=1).status_code == 200


def test_a_lone_surrogate_is_refused(server: Server) -> None:
    body = b'{"prompt": "\\ud800"}'
    error(server.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"}))


@pytest.mark.parametrize("body", ["{", "", "nul", '{"prompt": "x"', "\xff"])
def test_a07_bodies_that_are_no_json(server: Server, body: str) -> None:
    answer = server.client.post(
        "/v1/completions", content=body.encode("latin-1"), headers={"Content-Type": "application/json"}
    )
    error(answer)
    assert server.get("/health").status_code == 200


def test_a_body_of_another_type_is_told_which_header_to_send(server: Server) -> None:
    for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
        answer = server.client.post("/v1/completions", content=b'{"prompt": "x"}', headers=headers)
        assert "Content-Type: application/json" in error(answer, 415)["message"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "assistant", "content": 5}, "messages[1].content"),
        ({"content": "x"}, "messages[1].role"),
    ],
)
def test_a_message_without_its_parts_is_named(server: Server, message: dict[str, Any], param: str) -> None:
    found = error(server.chat(messages=[{"role": "user", "content": "hi"}, message]))
    assert found["param"] == param
    assert param in found["message"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"])
def test_numbers_that_are_none_are_refused(server: Server, field: str, text: str) -> None:
    body = f'{{"prompt": "x", "{field}": {text}}}'
    found = error(
        server.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    )
    assert found["param"] == field


@pytest.mark.parametrize(
    ("bias", "status"),
    [({"99999999": 5}, 400), ({"-1": 1}, 400), ({"abc": 1}, 400), ({"5": -100}, 200), ({"5": 1000}, 400)],
)
def test_a40_logit_bias_outside_the_vocabulary(server: Server, bias: dict[str, float], status: int) -> None:
    answer = server.complete("x", logit_bias=bias, max_tokens=2)
    assert answer.status_code == status
    if status == 400:
        assert error(answer)["param"] == "logit_bias"


def test_a40_requests_in_flight_survive_bad_ids() -> None:
    with running(step_seconds=0.01) as server, ThreadPoolExecutor(4) as pool:
        alone = server.complete("x0", max_tokens=40).json()["choices"]
        others = [pool.submit(server.complete, f"x{i}", max_tokens=40) for i in range(4)]
        until(lambda: server.metric("num_requests_running") == 4)
        for bias in ({"99999999": 5}, {"-1": 1}, {"1024": 1}):
            error(server.complete("y", logit_bias=bias))
        error(server.complete("y", stop_token_ids=[99999999]))
        error(server.complete([99999999]))
        assert server.complete("y", logit_bias={"5": -100}, max_tokens=2).status_code == 200
        answers = [other.result() for other in others]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert answers[0].json()["choices"] == alone


@pytest.mark.parametrize(
    "field",
    [{"guided_json": {"type": "object"}}, {"prediction": {"type": "content", "content": "x"}}],
)
def test_what_is_not_served_is_refused_by_name_never_ignored(server: Server, field: dict[str, Any]) -> None:
    assert error(server.chat(**field), 501)["param"] == next(iter(field))


def test_harmless_fields_of_other_clients_pass(server: Server) -> None:
    assert server.chat(user="me", metadata={"a": "b"}, store=False, max_tokens=1).status_code == 200


def test_unknown_routes_and_methods_have_the_error_object_too(server: Server) -> None:
    assert "GET /v1/nothing" in error(server.get("/v1/nothing"), 404)["message"]
    error(server.get("/v1/completions"), 405)
    error(server.get("/v1/models/nope"), 404)


def test_a68_a_request_that_fits_the_context_but_not_the_pool_is_refused_at_once() -> None:
    with running(num_blocks=8) as small:
        found = error(small.complete([97] * 200, max_tokens=4))
        assert "200" in found["message"]
        for _ in range(3):
            assert small.complete("abc", max_tokens=4).status_code == 200


def test_one_failing_request_leaves_the_others_alone(server: Server) -> None:
    from tests.engine.fakes import BROKEN, RAISE

    for poison in (BROKEN, RAISE):
        error(server.complete([97, poison], max_tokens=4), 500)
        assert server.complete("x", max_tokens=4).status_code == 200
    assert server.get("/health").status_code == 200


def test_a_prompt_that_is_certainly_too_long_is_refused_unread(server: Server) -> None:
    text = "x" * 10_000_000
    for answer in (server.complete(text), server.chat(text)):
        found = error(answer)
        assert found["param"] == "prompt"
        assert "512 tokens" in found["message"]
    assert error(server.post("/tokenize", {"prompt": text}))["param"] == "prompt"


def test_more_answers_than_may_ever_wait_are_the_clients_mistake_not_a_busy_server() -> None:
    with running(max_num_queued_reqs=20) as small:
        assert error(small.complete("x", n=21))["param"] == "n"
        assert error(small.complete(["x"] * 11, n=2))["param"] == "n"
        assert error(small.complete(["x"] * 21))["param"] == "prompt"
        assert error(small.chat(n=21))["param"] == "n"
        assert len(small.complete(["x"] * 10, n=2, max_tokens=1).json()["choices"]) == 20


def test_of_many_unknown_fields_the_first_is_named(server: Server) -> None:
    found = error(server.complete("hi", **{f"field_{i}": i for i in range(20_000)}))
    assert found["param"] == "field_0"
    assert found["message"] == "field_0: no such field"


def test_one_unknown_field_hides_no_further_finding() -> None:
    """Only surplus unknown fields are left out of the report."""
    with pytest.raises(ValidationError) as caught:
        CompletionRequest.model_validate({"prompt": "hi", "n": "x", "nope": 1, "never": 2})
    assert {finding["loc"][0] for finding in caught.value.errors()} == {"n", "nope"}
