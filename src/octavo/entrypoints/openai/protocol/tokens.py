"""Bodies of `/tokenize`, `/detokenize` and `/tokenizer_info`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator

from octavo.entrypoints.openai.protocol.fields import Body
from octavo.lib.errors import InvalidRequestError


class TokenizeRequest(Body):
    """Text, or a conversation that the chat template renders first."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _check(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("give either prompt or messages", param="prompt")
        if self.messages is not None and not self.messages:
            raise InvalidRequestError("messages must hold at least one message", param="messages")
        if (
            self.continue_final_message
            and self.add_generation_prompt
            and "add_generation_prompt" in self.model_fields_set
        ):
            message = "continue_final_message and add_generation_prompt exclude each other"
            raise InvalidRequestError(message, param="continue_final_message")
        return self


class TokenizeResponse(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Body):
    """Token ids to turn back into text."""

    model: str | None = None
    tokens: list[int]


class DetokenizeResponse(BaseModel):
    prompt: str


class TokenizerInfoResponse(BaseModel):
    model_max_length: int
    vocab_size: int
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    pad_token: str | None = None
    sep_token: str | None = None
    cls_token: str | None = None
    mask_token: str | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    add_bos_token: bool
    add_eos_token: bool
    chat_template: str | list[dict[str, str]] | None = None
    """As text where there is one, else each with its name."""
