"""langchain-openai held to langchain's own standard tests, with the server in OpenAI's place.

What a small model does not do by itself is forced, what needs a modality is off by the suite's own switches (see docs/clients.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests, chat_models
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient


def narrowed(schema: Any) -> Any:
    """The same schema with texts of 1 to 40 characters and no other properties.

    A small model repeats itself, and a text that never ends is an object cut short.
    """
    if isinstance(schema, list):
        return [narrowed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    limits: dict[str, Any] = {}
    if schema.get("type") == "string" and "const" not in schema:
        limits = {"minLength": 1, "maxLength": 40}
    if schema.get("type") == "object":
        limits = {"additionalProperties": False}
    return {name: narrowed(part) for name, part in schema.items()} | limits


def narrowed_body(content: bytes | None) -> bytes | None:
    if not content:
        return content
    body = json.loads(content)
    shapes = ("tools", "response_format", "text")
    return json.dumps(body | {name: narrowed(body[name]) for name in shapes if name in body}).encode()


class NarrowingClient(DefaultHttpxClient):
    """Where all that the package sends goes through."""

    def build_request(self, *args: Any, content: bytes | None = None, **kwargs: Any) -> Any:
        return super().build_request(*args, content=narrowed_body(content), **kwargs)


class NarrowingAsyncClient(DefaultAsyncHttpxClient):
    def build_request(self, *args: Any, content: bytes | None = None, **kwargs: Any) -> Any:
        return super().build_request(*args, content=narrowed_body(content), **kwargs)


class ForcedChat(ChatOpenAI):
    """Tools that are bound are called, one at a time."""

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        forced = {"tool_choice": tool_choice or "any", "parallel_tool_calls": False}
        return super().bind_tools(tools, **kwargs | forced)


@tool
def magic_function(input: Literal[3]) -> int:
    """Apply a magic function to an input."""
    return input + 2


@tool
def unicode_customer(customer_name: Literal["你好啊集团 こんにちは株式会社"], description: str) -> str:
    """Create a customer."""
    return f"{customer_name}: {description}"


class TestChat(ChatModelIntegrationTests):
    """The standard tests of a chat model."""

    # It asks for certain keys in words alone, and JSON mode promises none.
    supports_json_mode = False
    # They would be recorded on cassettes and compared with what a hosted model said.
    enable_vcr_tests = False

    @pytest.fixture(autouse=True)
    def arguments_that_the_questions_name(self) -> Iterator[None]:
        """The suite's tools whose arguments it looks at, with schemas that leave the model no others."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chat_models, "magic_function", magic_function)
            patch.setattr(chat_models, "unicode_customer", unicode_customer)
            yield

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ForcedChat

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": os.environ["OCTAVO_TEST_MODEL"],
            "max_retries": 0,
            "stream_usage": True,
            "http_client": NarrowingClient(),
            "http_async_client": NarrowingAsyncClient(),
        }

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "max_tokens": 300}

    @property
    def model_override_value(self) -> str:
        return os.environ["OCTAVO_TEST_MODEL"]


class TestResponses(TestChat):
    """The same over `/v1/responses`."""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return super().chat_model_params | {"use_responses_api": True}


class TestLogProbabilities:
    """What the standard suite does not ask for."""

    fields: ClassVar[dict[str, Any]] = {"temperature": 0, "max_tokens": 4, "max_retries": 0}

    def test_they_come_with_the_message(self, model: str) -> None:
        chat = ChatOpenAI(model=model, **self.fields).bind(logprobs=True, top_logprobs=2)
        answer = chat.invoke("What is the capital of France?")
        assert isinstance(answer, AIMessage)
        assert len(answer.response_metadata["logprobs"]["content"]) == 4
