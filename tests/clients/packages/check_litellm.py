"""litellm, as a library and through its router, against a server that it takes for OpenAI's."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

import litellm
import pytest
from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
# A proxy does not retry what its caller did wrong; neither does a test.
QUIET = {"num_retries": 0, "max_retries": 0}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


class City(BaseModel, extra="forbid"):
    name: Annotated[str, Field(min_length=1, max_length=20)]
    continent: Literal["Africa", "America", "Asia", "Europe"]


@pytest.fixture(scope="module")
def fields(base_url: str, api_key: str, model: str) -> dict[str, Any]:
    return {"model": f"openai/{model}", "api_base": base_url, "api_key": api_key, "temperature": 0, **QUIET}


def test_a_chat(fields: dict[str, Any]) -> None:
    answer = litellm.completion(messages=QUESTION, max_tokens=24, **fields)
    assert "Paris" in answer.choices[0].message.content
    usage = answer.usage
    assert usage.prompt_tokens + usage.completion_tokens == usage.total_tokens


def test_a_stream_is_the_whole_answer(fields: dict[str, Any]) -> None:
    whole = litellm.completion(messages=QUESTION, max_tokens=24, **fields)
    chunks = list(
        litellm.completion(
            messages=QUESTION, max_tokens=24, stream=True, stream_options={"include_usage": True}, **fields
        )
    )
    rebuilt = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    assert rebuilt.choices[0].message.content == whole.choices[0].message.content
    assert rebuilt.choices[0].finish_reason == whole.choices[0].finish_reason
    assert rebuilt.usage.total_tokens == whole.usage.total_tokens


def test_many_at_once(fields: dict[str, Any]) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(
            *(litellm.acompletion(messages=QUESTION, max_tokens=8, **fields) for _ in range(4))
        )

    answers = asyncio.run(ask())
    assert len({answer.choices[0].message.content for answer in answers}) == 1


def test_log_probabilities(fields: dict[str, Any]) -> None:
    answer = litellm.completion(
        messages=QUESTION,
        max_tokens=4,
        logprobs=True,
        top_logprobs=2,
        allowed_openai_params=["logprobs"],
        **fields,
    )
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 4
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


def test_fields_that_openai_does_not_have(fields: dict[str, Any]) -> None:
    drawn = {**fields, "temperature": 1.0}
    one, other = (
        litellm.completion(
            messages=QUESTION, max_tokens=12, seed=7, extra_body={"top_k": 20, "min_p": 0.05}, **drawn
        )
        for _ in range(2)
    )
    assert one.choices[0].message.content == other.choices[0].message.content
    with pytest.raises(litellm.BadRequestError, match="min_p"):
        litellm.completion(messages=QUESTION, extra_body={"min_p": 3}, **fields)


def test_a_text_completion(fields: dict[str, Any]) -> None:
    fields = fields | {"model": fields["model"].replace("openai/", "text-completion-openai/")}
    answer = litellm.text_completion(prompt="The capital of France is", max_tokens=8, **fields)
    assert "Paris" in answer.choices[0].text


def test_responses(fields: dict[str, Any]) -> None:
    answer = litellm.responses(input="What is the capital of France?", max_output_tokens=24, **fields)
    assert answer.status in ("completed", "incomplete")
    assert "Paris" in answer.output_text


def test_the_router_and_its_error_classes(fields: dict[str, Any], model: str) -> None:
    router = litellm.Router(model_list=[{"model_name": "small", "litellm_params": fields}], num_retries=0)
    answer = router.completion(model="small", messages=QUESTION, max_tokens=24)
    assert "Paris" in answer.choices[0].message.content
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(messages=QUESTION, **fields | {"api_key": "wrong"})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=QUESTION, **fields | {"model": "openai/none"})
    with pytest.raises(litellm.BadRequestError, match="max_tokens"):
        litellm.completion(messages=QUESTION, max_tokens=0, **fields)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_forced_call_whole_and_streamed(fields: dict[str, Any], choice: Any) -> None:
    asked = [{"role": "user", "content": "How will the weather be in Rome tomorrow?"}]
    told = {"messages": asked, "tools": [WEATHER], "tool_choice": choice, "max_tokens": 80, **fields}
    whole = litellm.completion(**told)
    (call,) = whole.choices[0].message.tool_calls
    assert call.function.name == "weather"
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Paris", "Rome")
    assert arguments["days"] in (1, 2, 3)
    rebuilt = litellm.stream_chunk_builder(list(litellm.completion(stream=True, **told)), messages=asked)
    (streamed,) = rebuilt.choices[0].message.tool_calls
    assert streamed.function == call.function
    assert rebuilt.choices[0].finish_reason == whole.choices[0].finish_reason


def test_what_a_call_returned_goes_back(fields: dict[str, Any]) -> None:
    asked = [{"role": "user", "content": "How will the weather be in Rome tomorrow?"}]
    call = litellm.completion(
        messages=asked, tools=[WEATHER], tool_choice="required", max_tokens=80, **fields
    ).choices[0]
    result = {"role": "tool", "tool_call_id": call.message.tool_calls[0].id, "content": "Rain."}
    history = [*asked, call.message.model_dump(), result]
    answer = litellm.completion(
        messages=history, tools=[WEATHER], tool_choice="none", max_tokens=24, **fields
    )
    assert answer.choices[0].message.content
    assert not answer.choices[0].message.tool_calls


def test_an_object_after_a_schema(fields: dict[str, Any]) -> None:
    answer = litellm.completion(
        messages=[{"role": "user", "content": "Describe Paris."}],
        response_format=City,
        max_tokens=80,
        **fields,
    )
    assert City.model_validate_json(answer.choices[0].message.content)
