"""Bodies of `/v1/responses`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.lib.errors import InvalidRequestError, NotSupportedError

MAX_INPUT_ITEMS = 4096
MAX_METADATA = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512
MAX_TOP_LOGPROBS = 20
MAX_TOOLS = 512
LOGPROBS = "message.output_text.logprobs"
# What may be asked to be included although this server never has any of it: there is nothing to leave out.
NEVER_THERE = frozenset(
    {
        "reasoning.encrypted_content", "web_search_call.action.sources", "web_search_call.results",
        "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
        "message.input_image.image_url",
    }
)  # fmt: skip
# Sampling fields whose answer has no place in a response object.
_OUT_OF_PLACE = {"n": 1, "prompt_logprobs": None, "return_token_ids": False, "use_beam_search": False}


class TextFormat(BaseModel):
    """`text`, `json_object`, or `json_schema` with its schema beside the type."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _check(self) -> TextFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise InvalidRequestError("text.format.schema is missing", param="text.format.schema")
        return self

    def response_format(self) -> dict[str, Any]:
        """As chat completions write it."""
        if self.type != "json_schema":
            return {"type": self.type}
        schema = {"name": self.name or "answer", "schema": self.json_schema}
        return {
            "type": self.type,
            "json_schema": schema | {"strict": True if self.strict is None else self.strict},
        }


class TextOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(BaseModel):
    """How much to think. No summaries are made: the reasoning itself is given."""

    model_config = ConfigDict(extra="forbid")

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: str | None = None


class ResponsesRequest(SamplingFields):
    """Something to answer, perhaps after what an earlier response holds."""

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    store: bool | None = None
    background: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> ResponsesRequest:
        _refuse_what_is_not_served(self)
        if not self.input:
            raise InvalidRequestError("input must hold a text or at least one item", param="input")
        if isinstance(self.input, list) and len(self.input) > MAX_INPUT_ITEMS:
            message = f"input takes at most {MAX_INPUT_ITEMS} items, got {len(self.input)}"
            raise InvalidRequestError(message, param="input")
        if self.background and self.store is False:
            raise InvalidRequestError("background needs store=true: it is fetched later", param="background")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            message = f"max_output_tokens must be at least 1, got {self.max_output_tokens}"
            raise InvalidRequestError(message, param="max_output_tokens")
        _check_includes(self)
        _check_metadata(self.metadata or {})
        return self

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        asked = self.top_logprobs is not None or bool(self.logprob_token_ids)
        return LOGPROBS in (self.include or ()) or asked

    @property
    def input_items(self) -> list[dict[str, Any]]:
        """The input as items; a plain text is one message of the user."""
        if isinstance(self.input, str):
            content = [{"type": "input_text", "text": self.input}]
            return [{"type": "message", "role": "user", "content": content}]
        return self.input


def _refuse_what_is_not_served(body: ResponsesRequest) -> None:
    for name, neutral in _OUT_OF_PLACE.items():
        if getattr(body, name) not in (neutral, None):
            raise NotSupportedError(f"{name} has no meaning in a response", param=name)
    if body.conversation is not None:
        message = "conversation is not supported: continue a response with previous_response_id"
        raise NotSupportedError(message, param="conversation")
    if body.prompt is not None:
        raise NotSupportedError("prompt (a stored prompt's id) is not supported: use input", param="prompt")


def _check_includes(body: ResponsesRequest) -> None:
    for name in body.include or ():
        if name != LOGPROBS and name not in NEVER_THERE:
            raise InvalidRequestError(f"include has no {name[:64]!r}; it takes {LOGPROBS}", param="include")
    top = body.top_logprobs
    if top is not None and not 0 <= top <= MAX_TOP_LOGPROBS:
        message = f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}, got {top}"
        raise InvalidRequestError(message, param="top_logprobs")


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        message = f"metadata takes at most {MAX_METADATA} entries, got {len(metadata)}"
        raise InvalidRequestError(message, param="metadata")
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE:
            message = (
                f"metadata takes keys of {MAX_METADATA_KEY} and values of {MAX_METADATA_VALUE} characters"
            )
            raise InvalidRequestError(message, param="metadata")


class ResponseDeleted(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ItemList(BaseModel):
    """One page of input items."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
