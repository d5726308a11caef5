"""The official clients against a real server with the default model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Annotated, Literal

import pytest
from anthropic import Anthropic, AuthenticationError, BadRequestError
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel, Field
from tests.clients.server import COMMAND, MODEL


class City(BaseModel, extra="forbid"):
    """A city. Its texts are bounded, since a small model repeats itself."""

    name: Annotated[str, Field(min_length=1, max_length=20)]
    continent: Literal["Africa", "America", "Asia", "Europe"]
    millions: Annotated[int, Field(ge=1, le=40)]


QUESTION = {"role": "user", "content": "Describe Paris."}


@pytest.fixture(scope="module")
def openai(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)


@pytest.fixture(scope="module")
def anthropic(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="key", max_retries=0)


def test_openai_responses_create_and_continue(openai: OpenAI) -> None:
    first = openai.responses.create(
        model=MODEL, input="What is the capital of France?", temperature=0, max_output_tokens=24
    )
    assert "Paris" in first.output_text
    assert openai.responses.retrieve(first.id) == first
    second = openai.responses.create(
        model=MODEL, input="And of Italy?", previous_response_id=first.id, temperature=0, max_output_tokens=8
    )
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.total_tokens
    items = openai.responses.input_items.list(second.id)
    assert len(items.data) == 1
    openai.responses.delete(first.id)


@pytest.mark.parametrize("limit", [100, 5])
def test_openai_responses_stream_equals_create(openai: OpenAI, limit: int) -> None:
    fields = {"model": MODEL, "input": "Capital of France?", "temperature": 0, "max_output_tokens": limit}
    whole = openai.responses.create(**fields)  # type: ignore[call-overload]
    with openai.responses.stream(**fields) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    final = events[-1].response  # type: ignore[union-attr]  # it is the one that ends the response
    assert events[-1].type == f"response.{'completed' if limit == 100 else 'incomplete'}"
    assert "".join(deltas) == final.output_text == whole.output_text
    assert final.status == whole.status
    assert openai.responses.retrieve(final.id).output_text == final.output_text


def test_openai_responses_in_the_background(openai: OpenAI) -> None:
    started = openai.responses.create(
        model=MODEL, input="Count to a million.", background=True, max_output_tokens=2000
    )
    assert started.status == "queued"
    assert openai.responses.cancel(started.id).status == "cancelled"


def test_openai_responses_parse(openai: OpenAI) -> None:
    parsed = openai.responses.parse(
        model=MODEL, input="Describe Paris.", text_format=City, temperature=0, max_output_tokens=120
    )
    assert isinstance(parsed.output_parsed, City)


def test_openai_responses_call_a_tool(openai: OpenAI) -> None:
    tool = pydantic_function_tool(City)["function"]
    fields = {
        "model": MODEL,
        "input": "Describe Paris.",
        "tools": [{"type": "function", **tool}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        # Some clients ask for a shape of text beside the call; a forced call has no text.
        "text": {"format": {"type": "json_object"}},
        "temperature": 0,
        "max_output_tokens": 120,
    }
    (call,) = (item for item in openai.responses.create(**fields).output if item.type == "function_call")  # type: ignore[call-overload]
    assert call.name == "City"
    assert City.model_validate_json(call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "It is so."}
    after = {**fields, "text": {}, "tool_choice": "none", "input": [QUESTION, call.model_dump(), result]}
    assert openai.responses.create(**after).output_text  # type: ignore[call-overload]


def test_openai_chat_parse_and_its_stream(openai: OpenAI) -> None:
    fields = {"model": MODEL, "messages": [QUESTION], "temperature": 0, "max_completion_tokens": 120}
    whole = openai.chat.completions.parse(response_format=City, **fields)  # type: ignore[arg-type]
    assert isinstance(whole.choices[0].message.parsed, City)
    with openai.chat.completions.stream(response_format=City, **fields) as stream:  # type: ignore[arg-type]
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "City"}}])
def test_openai_chat_parses_a_forced_call(openai: OpenAI, choice: object) -> None:
    fields = {
        "model": MODEL,
        "messages": [QUESTION],
        "tools": [pydantic_function_tool(City)],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_completion_tokens": 120,
    }
    whole = openai.chat.completions.parse(**fields).choices[0].message  # type: ignore[arg-type]
    assert whole.tool_calls is not None
    assert isinstance(whole.tool_calls[0].function.parsed_arguments, City)
    with openai.chat.completions.stream(**fields) as stream:  # type: ignore[arg-type]
        streamed = stream.get_final_completion().choices[0].message
    assert streamed.tool_calls is not None
    assert streamed.tool_calls[0].function.arguments == whole.tool_calls[0].function.arguments


def test_anthropic_calls_a_tool_whole_and_streamed(anthropic: Anthropic) -> None:
    fields = {
        "model": MODEL,
        "max_tokens": 120,
        "messages": [QUESTION],
        "tools": [{"name": "describe", "input_schema": City.model_json_schema()}],
        "tool_choice": {"type": "tool", "name": "describe"},
        "extra_body": {"temperature": 0},
    }
    whole = anthropic.messages.create(**fields)  # type: ignore[call-overload]
    (block,) = (block for block in whole.content if block.type == "tool_use")
    assert City.model_validate(block.input)
    assert whole.stop_reason == "tool_use"
    with anthropic.messages.stream(**fields) as stream:  # type: ignore[arg-type]
        final = stream.get_final_message()
    (streamed,) = (block for block in final.content if block.type == "tool_use")
    assert streamed.input == block.input


def test_anthropic_messages_and_stream(anthropic: Anthropic) -> None:
    fields = {
        "model": MODEL,
        "max_tokens": 24,
        "system": "You know geography.",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        # The client has no field for it any more; the protocol has.
        "extra_body": {"temperature": 0},
    }
    whole = anthropic.messages.create(**fields)  # type: ignore[call-overload]
    assert whole.content[0].type == "text"
    assert "Paris" in whole.content[0].text
    with anthropic.messages.stream(**fields) as stream:  # type: ignore[arg-type]
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    counted = anthropic.messages.count_tokens(
        **{name: value for name, value in fields.items() if name not in ("max_tokens", "extra_body")}  # type: ignore[arg-type]
    )
    usage = final.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_anthropic_errors_are_the_clients_classes(url: str, anthropic: Anthropic) -> None:
    with pytest.raises(BadRequestError, match="max_tokens"):
        anthropic.messages.create(model=MODEL, max_tokens=10_000, messages=[{"role": "user", "content": "x"}])
    stranger = Anthropic(base_url=url, api_key="wrong", max_retries=0)
    with pytest.raises(AuthenticationError):
        stranger.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "x"}])


def test_a_batch_file_is_answered_in_process_as_by_a_server(tmp_path: Path, url: str) -> None:
    source = tmp_path / "in.jsonl"
    chat = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Capital of France?"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    lines = [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chat},
        {
            "custom_id": "b",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": "Hi", "max_tokens": 0},
        },
        {
            "custom_id": "c",
            "method": "POST",
            "url": "/v1/responses",
            "body": {"input": "Hello", "max_output_tokens": 4, "temperature": 0},
        },
    ]
    source.write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n")
    answers = []
    for flags in ([], ["--url", url, "--api-key", "key"]):
        output = tmp_path / f"out{len(flags)}.jsonl"
        command = [*COMMAND, "batch", "-i", str(source), "-o", str(output), "--output-order", "input", *flags]
        subprocess.run([*command, "--no-progress"], check=True, timeout=200)
        answers.append([json.loads(line) for line in output.read_text().splitlines()])
    for records in answers:
        assert [record["custom_id"] for record in records] == ["a", "b", "c", None]
        assert [record["error"] is None for record in records] == [True, False, True, False]
    contents = [records[0]["response"]["body"]["choices"][0]["message"]["content"] for records in answers]
    assert contents[0] == contents[1]
