"""`use_beam_search` over the server: n choices, the same in both modes, and nothing that it cannot heed is ignored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.harness import Server, both, finish, joined

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "n": 3, "use_beam_search": True}
COMPLETION = {"prompt": "hi", "max_tokens": 5, "n": 3, "use_beam_search": True, "return_token_ids": True}


def test_choices_are_the_same_in_both_modes(server: Server) -> None:
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)):
        whole, chunks = both(server, path, body)
        texts = [choice.get("text") or choice["message"]["content"] for choice in whole["choices"]]
        assert len(set(texts)) == 3
        assert all(len(text) == 5 for text in texts)
        assert [joined(chunks, index) for index in range(3)] == texts
        assert [finish(chunks, index) for index in range(3)] == [["length"]] * 3
        assert whole["usage"]["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"] == 15


def test_log_probabilities_are_of_the_answers_tokens(server: Server) -> None:
    choices = server.complete(**(COMPLETION | {"logprobs": 2})).json()["choices"]
    for choice in choices:
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
        assert all(value < 0 for value in choice["logprobs"]["token_logprobs"])
    sums = [sum(choice["logprobs"]["token_logprobs"]) for choice in choices]
    assert sums == sorted(sums, reverse=True)


def test_several_prompts_keep_their_order(server: Server) -> None:
    one = [server.complete(**(COMPLETION | {"prompt": prompt})).json()["choices"] for prompt in ("hi", "you")]
    together = server.complete(**(COMPLETION | {"prompt": ["hi", "you"]})).json()["choices"]
    assert [choice["text"] for choice in together] == [choice["text"] for part in one for choice in part]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"n": 11}, "n"),
        ({"temperature": 0.7}, "temperature"),
        ({"top_p": 0.9}, "top_p"),
        ({"top_k": 5}, "top_k"),
        ({"stop": ["x"]}, "stop"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"allowed_token_ids": [5]}, "allowed_token_ids"),
        ({"length_penalty": 1e300}, "length_penalty"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"prompt": None, "prompt_embeds": "x"}, "use_beam_search"),
        ({"max_tokens": 1000}, "max_tokens"),
        ({"use_beam_search": False, "length_penalty": 2}, "length_penalty"),
    ],
)
def test_what_it_cannot_heed_is_refused(server: Server, fields: dict[str, Any], name: str) -> None:
    answer = server.post("/v1/completions", COMPLETION | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == name


def test_neutral_values_and_a_seed_pass(server: Server) -> None:
    fields = {"temperature": 0, "top_p": 1.0, "top_k": -1, "seed": 3, "length_penalty": 0.5, "stop": []}
    assert server.complete(**(COMPLETION | fields)).status_code == 200


def test_a_structured_answer_is_not_searched_for(server: Server) -> None:
    answer = server.chat(use_beam_search=True, max_tokens=5, structured_outputs={"choice": ["a", "b"]})
    assert answer.status_code in (400, 501)
    assert answer.json()["error"]["param"] == "use_beam_search"
