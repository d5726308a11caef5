"""Bodies of `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from octavo.entrypoints.openai.protocol.fields import Body
from octavo.lib.errors import InvalidRequestError, NotSupportedError

MAX_STOP_SEQUENCES = 64
MAX_MESSAGES = 100_000
# They steer a hosted service, never the answer.
_HOSTED = frozenset(
    {"cache_control", "inference_geo", "diagnostics", "speed", "user_profile_id", "workspace_id", "context_management"}
)  # fmt: skip
# What would make the service run something itself.
_NOT_HERE = ("container", "mcp_servers")


class Thinking(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: str | None = None


class OutputFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["json_schema"]
    # `schema` is a method of pydantic's models.
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class ToolChoice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class CountTokensRequest(Body):
    """A conversation whose prompt is counted."""

    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_hosted(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in _NOT_HERE:
            if data.get(name):
                raise NotSupportedError(f"{name} is not supported: this server runs no tools", param=name)
        return {name: value for name, value in data.items() if name not in _HOSTED and name not in _NOT_HERE}

    @model_validator(mode="after")
    def _check_conversation(self) -> CountTokensRequest:
        if not 1 <= len(self.messages) <= MAX_MESSAGES:
            message = f"messages takes 1 to {MAX_MESSAGES} messages, got {len(self.messages)}"
            raise InvalidRequestError(message, param="messages")
        if self.tool_choice is not None and self.tool_choice.type in ("any", "tool") and not self.tools:
            message = f"tool_choice {self.tool_choice.type} needs tools"
            raise InvalidRequestError(message, param="tool_choice")
        return self


class MessagesRequest(CountTokensRequest):
    """A conversation to continue."""

    max_tokens: int
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    # Of this server, by the names of its other bodies.
    seed: int | None = None
    priority: int = 0
    cache_salt: str | None = None

    @model_validator(mode="after")
    def _check(self) -> MessagesRequest:
        if self.max_tokens < 1:
            raise InvalidRequestError(
                f"max_tokens must be at least 1, got {self.max_tokens}", param="max_tokens"
            )
        if self.temperature is not None and not 0.0 <= self.temperature <= 1.0:
            message = f"temperature must be between 0 and 1 in this API, got {self.temperature}"
            raise InvalidRequestError(message, param="temperature")
        if len(self.stop_sequences or ()) > MAX_STOP_SEQUENCES:
            message = f"stop_sequences takes at most {MAX_STOP_SEQUENCES} strings, got {len(self.stop_sequences or ())}"
            raise InvalidRequestError(message, param="stop_sequences")
        return self


class TokenCount(BaseModel):
    input_tokens: int
