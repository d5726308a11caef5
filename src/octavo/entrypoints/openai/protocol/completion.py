"""Bodies of `/v1/completions`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, model_validator

from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.lib.errors import InvalidRequestError, NotSupportedError

MAX_PROMPTS = 1024


class CompletionRequest(SamplingFields):
    """One or several prompts, as text, as token ids, or as rows of the embedding, which are answered first."""

    prompt: str | list[int] | list[str] | list[list[int]] | None = None
    prompt_embeds: str | list[str] | None = None
    model: str | None = None
    max_tokens: int | None = 16
    logprobs: int | None = None
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _check(self) -> CompletionRequest:
        if self.suffix:
            raise NotSupportedError("suffix is not supported", param="suffix")
        if self.best_of is not None and self.best_of != self.n:
            raise NotSupportedError("best_of is not supported; use n", param="best_of")
        count = len(self.prompts) + len(self.embeds)
        if not 1 <= count <= MAX_PROMPTS:
            raise InvalidRequestError(f"prompt takes 1 to {MAX_PROMPTS} prompts, got {count}", param="prompt")
        if self.embeds and self.echo:
            raise InvalidRequestError("echo repeats text, which prompt_embeds are not", param="echo")
        if self.max_tokens == 0 and not self.echo:
            raise InvalidRequestError("max_tokens must be at least 1 unless echo is set", param="max_tokens")
        if self.use_beam_search and self.prompt_embeds:
            message = "prompt_embeds have no token ids, which use_beam_search needs"
            raise InvalidRequestError(message, param="use_beam_search")
        if self.use_beam_search and self.echo and (self.logprobs is not None or self.max_tokens == 0):
            message = "echo with use_beam_search repeats text only: it takes no logprobs and needs max_tokens"
            raise InvalidRequestError(message, param="echo")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one, whichever of the four forms they came in."""
        prompt = self.prompt
        if prompt is None:
            return []
        if isinstance(prompt, str):
            return [prompt]
        if prompt and isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)  # type: ignore[arg-type]

    @property
    def embeds(self) -> list[str]:
        """The prompts that are safetensors in base64."""
        given = self.prompt_embeds
        return [given] if isinstance(given, str) else list(given or [])


class CompletionLogprobs(BaseModel):
    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class Completion(BaseModel):
    """A whole answer, and each chunk of a streamed one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    system_fingerprint: str | None = None
