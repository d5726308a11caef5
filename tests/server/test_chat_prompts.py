"""Conversations to prompts through the server (cases A28, A31, A32, A34)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.fakes import BOS
from tests.server.harness import Server, running

from octavo.entrypoints.openai.args import ServerArgs

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls is defined %}[calls]{% endif %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STRICT = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}({{ m.role }}){{ m.content }}{% endfor %}"
)


def prompt(server: Server, messages: list[dict[str, Any]], **fields: Any) -> str:
    """The text of the prompt that a conversation becomes."""
    ids = server.post("/tokenize", {"messages": messages} | fields)
    assert ids.status_code == 200, ids.text
    return str(server.post("/detokenize", {"tokens": ids.json()["tokens"]}).json()["prompt"])


@pytest.fixture(scope="module")
def chatml() -> Iterator[Server]:
    with running(server_args=ServerArgs(chat_template=CHATML, shutdown_timeout=1)) as server:
        yield server


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    with running(server_args=ServerArgs(chat_template=STRICT, shutdown_timeout=1)) as server:
        yield server


TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def test_a31_the_three_legal_settings_give_three_prompts(chatml: Server) -> None:
    opened = prompt(chatml, TALK)
    closed = prompt(chatml, TALK, add_generation_prompt=False)
    continued = prompt(chatml, TALK, add_generation_prompt=False, continue_final_message=True)
    assert opened == "<|user|>hi<|end|><|assistant|>hello<|end|><|assistant|>"
    assert closed == "<|user|>hi<|end|><|assistant|>hello<|end|>"
    assert continued == "<|user|>hi<|end|><|assistant|>hello"
    both = {"messages": TALK, "add_generation_prompt": True, "continue_final_message": True}
    assert chatml.post("/tokenize", both).status_code == 400
    assert chatml.post("/v1/chat/completions", both).status_code == 400


def test_a31_chat_sees_the_same_prompt_as_tokenize(chatml: Server) -> None:
    for fields in (
        {},
        {"add_generation_prompt": False},
        {"add_generation_prompt": False, "continue_final_message": True},
    ):
        answer = chatml.post(
            "/v1/chat/completions", {"messages": TALK, "max_tokens": 1, "return_token_ids": True} | fields
        )
        ids = chatml.post("/tokenize", {"messages": TALK} | fields).json()["tokens"]
        assert answer.json()["prompt_token_ids"] == ids


def test_a32_an_empty_list_of_tool_calls_is_as_none(chatml: Server) -> None:
    plain = [*TALK, {"role": "user", "content": "more"}]
    empty = [TALK[0], TALK[1] | {"tool_calls": []}, {"role": "user", "content": "more"}]
    assert prompt(chatml, empty) == prompt(chatml, plain)
    assert chatml.post("/v1/chat/completions", {"messages": empty, "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "must alternate"),
        ([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "System role not supported"),
    ],
)
def test_a34_a_templates_own_refusal_is_a_400_with_its_words(
    strict: Server, messages: Any, said: str
) -> None:
    answer = strict.post("/v1/chat/completions", {"messages": messages})
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert strict.get("/health").status_code == 200


def test_a28_a_template_that_writes_bos_gives_one(strict: Server) -> None:
    text = prompt(strict, [{"role": "user", "content": "hi"}])
    assert text == "<bos>(user)hi"
    ids = strict.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
    assert ids.count(BOS) <= 1


def test_content_parts_are_text_or_refused(chatml: Server) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    text = prompt(chatml, [{"role": "user", "content": parts}])
    assert "one" in text
    assert "two" in text
    assert "type" not in text
    image = [{"type": "image_url", "image_url": {"url": "http://host/a.png"}}]
    answer = chatml.post("/v1/chat/completions", {"messages": [{"role": "user", "content": image}]})
    assert answer.status_code in (400, 501)
    assert "image" in answer.json()["error"]["message"]


def test_a_request_brings_a_template_only_where_that_is_trusted(chatml: Server) -> None:
    body = {"messages": TALK, "chat_template": "{{ messages[0].content }}"}
    assert chatml.post("/v1/chat/completions", body).json()["error"]["param"] == "chat_template"
    with running(server_args=ServerArgs(trust_request_chat_template=True, shutdown_timeout=1)) as trusting:
        assert prompt(trusting, TALK, chat_template="{{ messages[0].content }}") == "hi"
        for hostile in (
            "{% for i in range(10**9) %}x{% endfor %}",
            "{{ ''.__class__.__mro__ }}",
            "{{ 'a' * 10**10 }}",
            "{% if %}",
        ):
            assert trusting.post("/tokenize", {"messages": TALK, "chat_template": hostile}).status_code == 400
        assert trusting.get("/health").status_code == 200


def test_template_arguments_must_not_shadow_fields(chatml: Server) -> None:
    body = {"messages": TALK, "chat_template_kwargs": {"messages": []}}
    assert chatml.post("/v1/chat/completions", body).json()["error"]["param"] == "chat_template_kwargs"
