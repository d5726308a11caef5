"""Streams say the same as whole answers (cases A01, A09, A12, A13, A16, A18, A20, A38, A48)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.harness import Server, both, events, finish, joined, running


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 24} | fields


def usage(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    return {k: v for k, v in chunks[-1]["usage"].items() if k != "prompt_tokens_details"}


def plain_usage(whole: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in whole["usage"].items() if k != "prompt_tokens_details"}


def test_a01_usage_rides_on_one_last_chunk_without_choices(server: Server) -> None:
    whole, chunks = both(server, "/v1/chat/completions", chat_body(max_tokens=8))
    assert all(chunk.get("usage") is None for chunk in chunks if chunk["choices"])
    assert [bool(chunk["choices"]) for chunk in chunks].count(False) == 1
    assert chunks[-1]["choices"] == []
    assert usage(chunks) == plain_usage(whole)
    bare = events(server.post("/v1/chat/completions", chat_body(stream=True)).text)
    assert all(chunk.get("usage") is None and chunk["choices"] for chunk in bare)


@pytest.mark.parametrize(
    "extra", [{}, {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}]
)
def test_a20_every_choice_of_every_chunk_has_a_finish_reason_key(
    server: Server, extra: dict[str, Any]
) -> None:
    whole, chunks = both(server, "/v1/chat/completions", chat_body(**extra))
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert all("finish_reason" in choice for choice in choices)
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert finish(chunks) == [whole["choices"][0]["finish_reason"]] == ["length"]
    assert joined(chunks) == whole["choices"][0]["message"]["content"]


def test_a48_three_choices_each_with_its_own_whole_text(server: Server) -> None:
    body = chat_body(n=3, temperature=1, seed=1)
    whole, chunks = both(server, "/v1/chat/completions", body)
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert [joined(chunks, index) for index in range(3)] == texts
    assert [finish(chunks, index) for index in range(3)] == [["length"]] * 3
    assert usage(chunks) == plain_usage(whole)
    assert whole["usage"]["completion_tokens"] == 72


def test_a12_several_prompts_with_n_come_in_prompt_major_order(server: Server) -> None:
    body = {"prompt": ["a b c", "d e f"], "n": 2, "echo": True, "max_tokens": 4, "temperature": 1, "seed": 3}
    whole, chunks = both(server, "/v1/completions", body)
    texts = [choice["text"] for choice in whole["choices"]]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert [text[:5] for text in texts] == ["a b c", "a b c", "d e f", "d e f"]
    assert [joined(chunks, index) for index in range(4)] == texts
    assert whole["usage"]["completion_tokens"] == 16
    assert whole["usage"]["prompt_tokens"] == 10
    assert usage(chunks) == plain_usage(whole)


def test_a09_echoed_tokens_join_to_the_text_and_offsets_are_exact(server: Server) -> None:
    body = {"prompt": "\n1. Carol has 20é", "echo": True, "logprobs": 1, "max_tokens": 5, "temperature": 0}
    whole, chunks = both(server, "/v1/completions", body)
    columns = whole["choices"][0]["logprobs"]
    check_columns(columns, whole["choices"][0]["text"])
    assert columns["token_logprobs"][0] is None
    assert columns["top_logprobs"][0] is None
    pieces = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    streamed = {name: [item for piece in pieces for item in piece[name]] for name in columns}
    assert streamed == columns


def check_columns(columns: dict[str, Any], text: str) -> None:
    assert "".join(columns["tokens"]) == text
    lengths = [len(token) for token in columns["tokens"]]
    assert columns["text_offset"] == [sum(lengths[:i]) for i in range(len(lengths))]
    assert len(columns["token_logprobs"]) == len(columns["tokens"]) == len(columns["top_logprobs"])


def test_echo_alone_runs_only_the_prompt(server: Server) -> None:
    body = {"prompt": "abc", "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0}
    whole, chunks = both(server, "/v1/completions", body)
    assert whole["choices"][0]["text"] == joined(chunks) == "abc"
    assert whole["choices"][0]["logprobs"]["tokens"] == ["a", "b", "c"]
    assert whole["usage"]["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"] == 0


@pytest.fixture(scope="module")
def scripted() -> Iterator[Server]:
    with running(script="ABC DEFGHIJ tail") as server:
        yield server


def test_a13_no_piece_of_a_stop_string_is_ever_sent(scripted: Server) -> None:
    whole, chunks = both(scripted, "/v1/chat/completions", chat_body(stop=["DEFGHIJ"]))
    assert whole["choices"][0]["message"]["content"] == joined(chunks) == "ABC "
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["choices"][0]["stop_reason"] == "DEFGHIJ"
    assert finish(chunks) == ["stop"]
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert not set("DEFGHIJ") & set(choice["delta"].get("content") or "")


def test_a13_include_stop_str_keeps_it(scripted: Server) -> None:
    body = chat_body(stop=["DEFGHIJ"], include_stop_str_in_output=True)
    whole, chunks = both(scripted, "/v1/chat/completions", body)
    assert whole["choices"][0]["message"]["content"] == joined(chunks) == "ABC DEFGHIJ"


@pytest.fixture(scope="module")
def multibyte() -> Iterator[Server]:
    with running(script="日本🙂é ok") as server:
        yield server


def test_a16_characters_over_several_tokens_are_never_split(multibyte: Server) -> None:
    length = len("日本🙂é ok".encode())
    whole, chunks = both(multibyte, "/v1/chat/completions", chat_body(max_tokens=length))
    assert whole["choices"][0]["message"]["content"] == joined(chunks) == "日本🙂é ok"
    assert all("\ufffd" not in str(chunk) for chunk in chunks)
    cut, cut_chunks = both(multibyte, "/v1/chat/completions", chat_body(max_tokens=8))
    assert cut["choices"][0]["message"]["content"] == joined(cut_chunks)


def test_a18_logprob_tokens_are_plain_text_and_bytes_their_utf8(multibyte: Server) -> None:
    body = chat_body(max_tokens=6, logprobs=True, top_logprobs=2)
    whole, chunks = both(multibyte, "/v1/chat/completions", body)
    content = whole["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]) == "日本".encode()
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    streamed = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["logprobs"]
        for entry in choice["logprobs"]["content"]
    ]
    assert streamed == content


def test_a38_special_tokens_show_only_when_asked_for() -> None:
    from tests.engine.fakes import BOS

    with running() as server:
        prompt = [97, BOS, 98]
        hidden = server.complete(prompt, max_tokens=1, echo=True).json()["choices"][0]["text"]
        shown = server.complete(prompt, max_tokens=1, echo=True, skip_special_tokens=False).json()["choices"][
            0
        ]["text"]
    assert hidden[:2] == "ab"
    assert shown[:7] == "a<bos>b"


def test_continuous_usage_counts_up(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(server.post("/v1/chat/completions", chat_body(stream=True, stream_options=options)).text)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 24


def test_return_token_ids(server: Server) -> None:
    whole, chunks = both(server, "/v1/chat/completions", chat_body(return_token_ids=True, max_tokens=4))
    ids = whole["choices"][0]["token_ids"]
    assert bytes(ids).decode() == whole["choices"][0]["message"]["content"]
    assert [i for chunk in chunks for c in chunk["choices"] for i in c.get("token_ids") or []] == ids
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]


def test_return_token_ids_of_completions(server: Server) -> None:
    body = {"prompt": ["ab", "c"], "n": 2, "seed": 1, "max_tokens": 3, "return_token_ids": True}
    whole, chunks = both(server, "/v1/completions", body)
    for index, choice in enumerate(whole["choices"]):
        pieces = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert [i for piece in pieces for i in piece["token_ids"]] == choice["token_ids"]
        assert [piece["prompt_token_ids"] for piece in pieces if piece["prompt_token_ids"]] == [
            choice["prompt_token_ids"]
        ]
