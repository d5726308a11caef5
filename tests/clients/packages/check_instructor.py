"""instructor: answers as pydantic objects.

What works whatever the model says. See docs/clients.md for what is forced.
"""

from __future__ import annotations

import instructor
import pytest
from instructor.core import IncompleteOutputException
from openai import OpenAI
from pydantic import BaseModel


class Reply(BaseModel):
    text: str


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
