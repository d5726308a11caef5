"""instructor: answers as pydantic objects.

Each way in which it asks for an object holds the answer to the schema; texts are bounded, since a small model repeats itself.
"""

from __future__ import annotations

from typing import Annotated, Literal

import instructor
import pytest
from instructor.core import IncompleteOutputException
from openai import OpenAI
from pydantic import BaseModel, Field


class Reply(BaseModel):
    text: str


class City(BaseModel, extra="forbid"):
    name: Annotated[str, Field(min_length=1, max_length=20)]
    continent: Literal["Africa", "America", "Asia", "Europe"]
    millions: Annotated[int, Field(ge=1, le=40)]


QUESTION = [{"role": "user", "content": "Describe Paris."}]


@pytest.fixture(scope="module")
def client(base_url: str, api_key: str) -> OpenAI:
    return OpenAI(base_url=base_url, api_key=api_key, max_retries=0)


def test_a_plain_answer_passes_through(client: OpenAI, model: str) -> None:
    patched = instructor.from_openai(client, mode=instructor.Mode.MD_JSON)
    answer = patched.chat.completions.create(
        model=model,
        response_model=None,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=24,
    )
    assert "Paris" in answer.choices[0].message.content


def test_an_answer_cut_short_is_told_as_such(client: OpenAI, model: str) -> None:
    patched = instructor.from_openai(client, mode=instructor.Mode.MD_JSON)
    with pytest.raises(IncompleteOutputException) as failure:
        patched.chat.completions.create(
            model=model,
            response_model=Reply,
            messages=[{"role": "user", "content": "Hi"}],
            max_retries=1,
            temperature=0,
            max_tokens=2,
        )
    assert failure.value.last_completion.usage.completion_tokens == 2


@pytest.mark.parametrize(
    "mode", [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA]
)
def test_an_object(client: OpenAI, model: str, mode: instructor.Mode) -> None:
    patched = instructor.from_openai(client, mode=mode)
    city, completion = patched.chat.completions.create_with_completion(
        model=model, response_model=City, messages=QUESTION, max_retries=0, temperature=0, max_tokens=120
    )
    assert isinstance(city, City)
    called = bool(completion.choices[0].message.tool_calls)
    assert called == (mode != instructor.Mode.JSON_SCHEMA)


def test_an_object_over_responses(client: OpenAI, model: str) -> None:
    patched = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
    city = patched.responses.create(
        model=model,
        response_model=City,
        input="Describe Paris.",
        max_retries=0,
        temperature=0,
        max_output_tokens=120,
    )
    assert isinstance(city, City)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_a_stream_of_parts_ends_as_an_object(client: OpenAI, model: str, mode: instructor.Mode) -> None:
    patched = instructor.from_openai(client, mode=mode)
    fields = {"model": model, "messages": QUESTION, "max_retries": 0, "temperature": 0, "max_tokens": 120}
    parts = list(patched.chat.completions.create_partial(response_model=City, **fields))
    assert len(parts) > 2
    assert City.model_validate(parts[-1].model_dump())
