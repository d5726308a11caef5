"""The real thing: `octavo serve` of the embedded model, asked by the openai SDK and by hand."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from tests.engine.paris import FRANCE, PARIS

MODEL = "SmolLM2-135M-Instruct"
CAPITAL: Any = [{"role": "user", "content": "What is the capital of France?"}]
GOLDEN_PROMPT, GOLDEN_ANSWER = FRANCE["prompt_token_ids"], PARIS


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "octavo.entrypoints.cli.main", "serve", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_ready(process, address)
        yield address
    finally:
        process.terminate()
        assert process.wait(60) == 0


def wait_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{address}/ready").status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail("the server did not come up")


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def complete(url: str, prompt: Any, **fields: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "return_token_ids": True} | fields
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_it_knows_the_capital_of_france(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=32)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_sdk_streams_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=32)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=CAPITAL,
        temperature=0,
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_sdk_lists_models_and_raises_its_classes(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=-1)


def test_golden_continuation(url: str) -> None:
    choice = complete(url, GOLDEN_PROMPT)["choices"][0]
    assert choice["token_ids"] == GOLDEN_ANSWER
    assert complete(url, "The capital of France is")["choices"][0]["text"] == choice["text"]


def test_a42_a_seed_gives_the_same_ids_whoever_else_is_there(url: str) -> None:
    seeded = {"temperature": 1.0, "seed": 7, "max_tokens": 24}
    alone = complete(url, GOLDEN_PROMPT, **seeded)["choices"][0]["token_ids"]
    others = [{"max_tokens": 5 + 7 * i, "temperature": i / 4, "seed": i} for i in range(8)]
    with ThreadPoolExecutor(9) as pool:
        crowd = [
            pool.submit(complete, url, [i + 300] * (11 * i + 3), **other) for i, other in enumerate(others)
        ]
        among = pool.submit(complete, url, GOLDEN_PROMPT, **seeded).result()
        for neighbour in crowd:
            neighbour.result()
    assert among["choices"][0]["token_ids"] == alone


@pytest.mark.parametrize(
    "field", [{"temperature": 1e-4}, {"temperature": 1e-6}, {"temperature": 1.0, "top_p": 1e-4}]
)
def test_a46_almost_greedy_is_greedy(url: str, field: dict[str, float]) -> None:
    assert complete(url, GOLDEN_PROMPT, **field)["choices"][0]["token_ids"] == GOLDEN_ANSWER


def test_a44_min_tokens_holds_back_every_stop(url: str) -> None:
    eos = 2
    biased = {"logit_bias": {str(eos): 100, "7": 100}, "stop_token_ids": [7], "max_tokens": 20}
    assert len(complete(url, GOLDEN_PROMPT, **biased)["choices"][0]["token_ids"]) == 1
    ids = complete(url, GOLDEN_PROMPT, **biased, min_tokens=10)["choices"][0]["token_ids"]
    assert len(ids) == 11
    assert not {eos, 7} & set(ids[:10])


@pytest.mark.parametrize("length", [31, 32, 33, 40])
def test_a64_prompt_logprobs_are_whole_on_a_second_ask(url: str, length: int) -> None:
    prompt = [(37 * i) % 4000 + 300 for i in range(length)]
    first = complete(url, prompt, prompt_logprobs=1, max_tokens=1)["choices"][0]["prompt_logprobs"]
    second = complete(url, prompt, prompt_logprobs=1, max_tokens=1)["choices"][0]["prompt_logprobs"]
    assert len(first) == length
    assert first == second
    echoes = [
        complete(url, prompt, echo=True, logprobs=1, max_tokens=1)["choices"][0]["logprobs"] for _ in range(2)
    ]
    assert echoes[0] == echoes[1]
    assert len(echoes[0]["token_logprobs"]) == length + 1


def test_a62_salts_do_not_share_pages(url: str) -> None:
    prompt = [(11 * i) % 4000 + 500 for i in range(100)]

    def cached(salt: str | None) -> int:
        usage = complete(url, prompt, max_tokens=2, cache_salt=salt)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert [cached("a"), cached("a"), cached("b"), cached(None), cached(None)] == [0, 96, 0, 0, 96]


def test_a38_special_tokens(url: str) -> None:
    asked = {"ignore_eos": True, "max_tokens": 60, "logit_bias": {"2": 12}}
    hidden = complete(url, GOLDEN_PROMPT, **asked)["choices"][0]
    shown = complete(url, GOLDEN_PROMPT, **asked, skip_special_tokens=False)["choices"][0]
    assert hidden["token_ids"] == shown["token_ids"]
    assert 2 in shown["token_ids"]
    assert "<|im_end|>" not in hidden["text"]
    assert "<|im_end|>" in shown["text"]


def test_a80_special_texts_are_one_id_each(url: str) -> None:
    for text, expected in (("<|im_start|>user\nhi<|im_end|>", [1, 4093, 198, 6004, 2]), ("", None)):
        answer = httpx.post(f"{url}/tokenize", json={"prompt": text}).json()
        if expected is not None:
            assert answer["tokens"] == expected
        back = httpx.post(f"{url}/detokenize", json={"tokens": answer["tokens"]}).json()["prompt"]
        assert back == text


def test_a71_cancel_and_retry_beside_a_long_request_keeps_the_ids(url: str) -> None:
    prompts = [[(i * 97 + j * 13) % 4000 + 300 for j in range(20 + 9 * i)] for i in range(5)]
    solo = [complete(url, prompt, max_tokens=12)["choices"][0]["token_ids"] for prompt in prompts]
    with ThreadPoolExecutor(6) as pool:
        long = pool.submit(complete, url, GOLDEN_PROMPT, max_tokens=150, ignore_eos=True)
        for _ in range(3):
            for prompt in prompts:
                with contextlib.suppress(httpx.TimeoutException):
                    httpx.post(
                        f"{url}/v1/completions", json={"prompt": prompt, "max_tokens": 200}, timeout=0.05
                    )
            again = [pool.submit(complete, url, prompt, max_tokens=12) for prompt in prompts]
            assert [run.result()["choices"][0]["token_ids"] for run in again] == solo
        assert len(long.result()["choices"][0]["token_ids"]) == 150


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}


def asked_for(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def test_a_schema_is_held_to_in_every_face(url: str, client: openai.OpenAI) -> None:
    form: Any = asked_for(PERSON)
    fields: Any = {"model": MODEL, "messages": CAPITAL, "temperature": 1.0, "seed": 3, "max_tokens": 60}
    whole = client.chat.completions.create(**fields, response_format=form).choices[0]
    stream = client.chat.completions.create(**fields, response_format=form, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert whole.message.content == streamed
    assert whole.finish_reason == "stop"
    texts = [
        streamed,
        complete(url, "A person:", max_tokens=60, structured_outputs={"json": PERSON})["choices"][0]["text"],
    ]
    response = client.responses.create(
        model=MODEL,
        input="A person",
        max_output_tokens=60,
        text={"format": {"type": "json_schema", "name": "person", "schema": PERSON}},
    )
    body = {
        "model": MODEL,
        "max_tokens": 60,
        "messages": CAPITAL,
        "output_config": {"format": {"type": "json_schema", "schema": PERSON}},
    }
    message = httpx.post(f"{url}/v1/messages", json=body, timeout=120).json()
    for text in [*texts, response.output_text, message["content"][0]["text"]]:
        jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize("pattern", ["abc", "^abc"])
def test_a49_patterns_are_not_anchored(url: str, pattern: str) -> None:
    found = complete(
        url, "x", structured_outputs={"json": {"type": "string", "pattern": pattern}}, max_tokens=60
    )
    choice = found["choices"][0]
    assert "abc" in choice["text"] or choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        (
            {"response_format": asked_for({"properties": {"a": {"not": {}}}})},
            "response_format",
            "/properties/a/not",
        ),
        ({"structured_outputs": {"json": {"if": {}}}}, "structured_outputs.json", "/if"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"grammar": "start: ((("}}, "structured_outputs.grammar", "Expected"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs", "regexp"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
    ],
)
def test_a51_a_shape_that_cannot_be_held_to_is_a_400(
    url: str, fields: dict[str, Any], param: str, words: str
) -> None:
    for stream in (False, True):
        body = {"messages": CAPITAL, "max_tokens": 4, "stream": stream} | fields
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param
        assert words in answer.json()["error"]["message"]


def test_calls_are_forced(client: openai.OpenAI) -> None:
    fields: Any = {"model": MODEL, "messages": CAPITAL, "tools": [WEATHER], "max_tokens": 60}
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        message = client.chat.completions.create(**fields, tool_choice=choice).choices[0].message
        assert message.tool_calls
        call: Any = message.tool_calls[0]
        assert call.function.name == "weather"
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
