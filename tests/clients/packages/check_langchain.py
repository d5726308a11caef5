"""langchain-openai held to langchain's own standard tests, with the server in OpenAI's place.

What needs a capable model or a modality stays off by the suite's own switches (see docs/clients.md).
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestChat(ChatModelIntegrationTests):
    """The standard tests of a chat model."""

    has_tool_calling = False
    has_structured_output = False
    supports_json_mode = False
    # They would be recorded on cassettes and compared with what a hosted model said.
    enable_vcr_tests = False

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": os.environ["OCTAVO_TEST_MODEL"], "max_retries": 0, "stream_usage": True}

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "max_tokens": 60}

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
