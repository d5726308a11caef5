"""Bodies of `/v1/chat/completions`."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer, model_validator

from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.entrypoints.openai.protocol.tools import ToolChoice, check_tools, chosen
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.lib.errors import InvalidRequestError


class ChatCompletionRequest(SamplingFields):
    """A conversation to continue."""

    messages: list[dict[str, Any]]
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    echo: bool = False

    @model_validator(mode="after")
    def _check(self) -> ChatCompletionRequest:
        if not self.messages:
            raise InvalidRequestError("messages must hold at least one message", param="messages")
        check_tools(self.tools or ())
        chosen(self.tool_choice, self.tools or ())
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs=true", param="top_logprobs")
        if self.continue_final_message and self.add_generation_prompt:
            message = "continue_final_message and add_generation_prompt exclude each other"
            raise InvalidRequestError(message, param="continue_final_message")
        return self

    @property
    def token_limit(self) -> int | None:
        """`max_completion_tokens`, or its older name."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        if not self.logprobs:
            return None
        return self.top_logprobs or 0

    @property
    def opens_assistant_turn(self) -> bool:
        """Whether the prompt ends with the header of a new assistant turn."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    @cached_property
    def choice(self) -> ToolChoice:
        """What may and must be called."""
        return chosen(self.tool_choice, self.tools or ())

    @property
    def max_calls(self) -> int | None:
        """Calls that an answer may hold."""
        return 1 if self.parallel_tool_calls is False or self.choice.named else None

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Variables for the template: how much to think, by the names that templates know; what is given goes first."""
        given = self.chat_template_kwargs or {}
        if self.reasoning_effort is None:
            return given
        thinks = self.reasoning_effort != "none"
        effort = {"reasoning_effort": self.reasoning_effort} if thinks else {}
        return {"enable_thinking": thinks, "thinking": thinks} | effort | given


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(BaseModel):
    content: list[TokenLogprob] | None = None


class FunctionCall(BaseModel):
    name: str
    arguments: str


class MessageToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AssistantMessage(BaseModel):
    """An answer. Reasoning is there under both names that clients know, and absent where there was none."""

    role: str = "assistant"
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[MessageToolCall] | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        body: dict[str, Any] = serialize(self)
        return {name: value for name, value in body.items() if value is not None or name == "content"}


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    prompt_token_ids: list[int] | None = None


class FunctionDelta(BaseModel):
    name: str | None = None
    arguments: str


class ToolCallDelta(BaseModel):
    """A piece of a call; id, type and name are in its first piece only."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class DeltaMessage(BaseModel):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(BaseModel):
    index: int
    delta: DeltaMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | None = None
