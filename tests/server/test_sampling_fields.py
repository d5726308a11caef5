"""Sampling fields over the server: taken by every face that has them, refused with their name and limit, shown alike in both modes."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from tests.server.harness import Server, both, running

LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [99999]}, "allowed_token_ids"),
    ({"logprob_token_ids": [-1]}, "logprob_token_ids"),
    ({"logprob_token_ids": [1] * 1025}, "logprob_token_ids"),
    ({"bad_words": [""]}, "bad_words"),
    ({"bad_words": ["a"] * 129}, "bad_words"),
    ({"thinking_token_budget": -1}, "thinking_token_budget"),
    ({"repetition_detection": {"max_pattern_size": 3}}, "repetition_detection"),
    ({"vllm_xargs": {"a": 1}}, "vllm_xargs"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 100_000}, "truncate_prompt_tokens"),
    ({"truncation_side": "middle"}, "truncation_side"),
]
FACES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
}


@pytest.mark.parametrize("path", FACES)
@pytest.mark.parametrize(("fields", "name"), LIMITS)
def test_a_bad_value_is_refused_by_name(server: Server, path: str, fields: dict[str, Any], name: str) -> None:
    answer = server.post(path, FACES[path] | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == name
    assert name in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", FACES)
def test_good_values_are_taken(server: Server, path: str) -> None:
    fields = {
        "allowed_token_ids": [97, 98],
        "logprob_token_ids": [65],
        "bad_words": ["x"],
        "thinking_token_budget": 3,
        "repetition_detection": {"max_pattern_size": 3, "min_count": 2},
        "truncate_prompt_tokens": 4,
        "truncation_side": "right",
    }
    answer = server.post(path, FACES[path] | fields)
    assert answer.status_code == 200, answer.text


def test_a_loop_ends_the_answer_with_its_own_reason() -> None:
    with running(script="abcxyxyxyxyxy") as server:
        body = {
            "prompt": "hi", "temperature": 0, "max_tokens": 13,
            "repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3},
        }  # fmt: skip
        whole, chunks = both(server, "/v1/completions", body)
        choice = whole["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("abcxyxyxy", "repetition")
        assert choice["stop_reason"] == "repetition_detected"
        ends = [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
        assert [(c["finish_reason"], c["stop_reason"]) for c in ends] == [
            ("repetition", "repetition_detected")
        ]


def test_a_long_prompt_is_cut(server: Server) -> None:
    def seen(side: str) -> list[int]:
        fields = {
            "truncate_prompt_tokens": 3,
            "truncation_side": side,
            "return_token_ids": True,
            "max_tokens": 1,
        }
        return list(server.complete("abcdef" * 1000, **fields).json()["choices"][0]["prompt_token_ids"])

    assert (bytes(seen("left")), bytes(seen("right"))) == (b"def", b"abc")
    whole = server.complete([97] * 5000, truncate_prompt_tokens=-1, max_tokens=12).json()
    assert whole["usage"]["prompt_tokens"] == 500
    cut = server.chat("x" * 5000, truncate_prompt_tokens=20, max_tokens=1, return_token_ids=True).json()
    assert bytes(cut["prompt_token_ids"]).endswith(b"[assistant]")
    assert cut["usage"]["prompt_tokens"] == 20


def test_tokens_can_be_shown_as_ids(server: Server) -> None:
    fields = {"return_tokens_as_token_ids": True, "max_tokens": 4, "temperature": 0}
    body = FACES["/v1/completions"] | {"logprobs": 1} | fields
    whole, chunks = both(server, "/v1/completions", body)
    columns = whole["choices"][0]["logprobs"]
    assert [f"token_id:{ord(letter)}" for letter in whole["choices"][0]["text"]] == columns["tokens"]
    assert all(name.startswith("token_id:") for top in columns["top_logprobs"] for name in top)
    streamed = [c["logprobs"]["tokens"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    assert list(chain(*streamed)) == columns["tokens"]
    chat = server.chat(logprobs=True, top_logprobs=1, **fields).json()["choices"][0]["logprobs"]["content"]
    assert all(entry["token"].startswith("token_id:") for entry in chat)


def test_top_logprobs_beyond_the_limit_names_its_field(server: Server) -> None:
    error = server.chat(logprobs=True, top_logprobs=21).json()["error"]
    assert error["param"] == "top_logprobs"
    assert "20" in error["message"]


def test_tokens_asked_for_by_id_are_shown_in_both_modes(server: Server) -> None:
    fields = {"logprob_token_ids": [200, 66], "max_tokens": 3, "temperature": 0}
    chat = FACES["/v1/chat/completions"] | fields | {"logprobs": True, "top_logprobs": 1}
    whole, chunks = both(server, "/v1/chat/completions", chat)
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    assert all("B" in {top["token"] for top in entry["top_logprobs"]} for entry in content)
    streamed = [c["logprobs"]["content"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    assert list(chain(*streamed)) == content
    columns = server.complete("hi", **fields).json()["choices"][0]["logprobs"]
    assert all(top["B"] == -50.0 - 66 for top in columns["top_logprobs"])
