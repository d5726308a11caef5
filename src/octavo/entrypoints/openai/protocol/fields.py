"""Fields that several request bodies share, and how they become `SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from octavo.entrypoints.openai.protocol.names import ENGINE_NAMES, named
from octavo.entrypoints.openai.protocol.structured import ResponseFormat, structured_params
from octavo.lib.errors import InvalidRequestError, NotSupportedError
from octavo.types.sampling_params import (
    BeamSearchParams,
    RepetitionDetectionParams,
    RequestOutputKind,
    SamplingParams,
)
from octavo.types.structured_outputs import StructuredOutputsParams

# Accepted and without effect: they steer a hosted service's billing, storage or routing, never the answer.
HARMLESS = frozenset(
    {
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "verbosity", "session_id",
    }
)  # fmt: skip
# Known to clients, changes the answer, not served by this version: refused unless it says nothing.
NOT_SERVED = frozenset(
    {
        "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "logits_processors", "prompt_embeds", "mm_processor_kwargs", "media_io_kwargs",
        "kv_transfer_params", "audio", "modalities", "prediction", "web_search_options", "reasoning_effort",
        "functions", "function_call",
    }
)  # fmt: skip


# What a search cannot heed, with the values that ask for nothing. A seed is heeded: the same search gives the same answer.
_NOT_WITH_BEAMS: dict[str, tuple[Any, ...]] = {
    "temperature": (0, 1), "top_p": (1,), "top_k": (0, -1), "min_p": (0,), "presence_penalty": (0,), "frequency_penalty": (0,),
    "repetition_penalty": (1,), "stop": ([], ""), "min_tokens": (0,), "logit_bias": ({},), "prompt_logprobs": (),
    "logprob_token_ids": ([],), "allowed_token_ids": (), "bad_words": ([],), "thinking_token_budget": (),
    "repetition_detection": (), "vllm_xargs": ({},),
}  # fmt: skip


class Body(BaseModel):
    """A request body: a field that nobody knows is refused, so that a typo never passes in silence."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _sort_out_foreign_fields(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in NOT_SERVED - set(cls.model_fields):
            if data.get(name) not in (None, False, [], {}):
                raise NotSupportedError(f"{name} is not supported by this version of Octavo", param=name)
        foreign = (HARMLESS | NOT_SERVED) - set(cls.model_fields)
        unknown = [name for name in data if name not in foreign and name not in cls.model_fields]
        # One is enough to refuse the body; a finding for each of a hundred thousand would hold up everybody.
        dropped = foreign.union(unknown[1:])
        return {name: value for name, value in data.items() if name not in dropped}


class StreamOptions(BaseModel):
    """What rides on a stream beside the text."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class RepetitionDetection(BaseModel):
    """When an answer counts as caught in a loop."""

    model_config = ConfigDict(extra="forbid")

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


class SamplingFields(Body):
    """Everything that steers the sampler, by the names that OpenAI and vLLM use."""

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: dict[str, float] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetection | None = None
    vllm_xargs: dict[str, Any] | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] = "left"
    return_tokens_as_token_ids: bool = False
    structured_outputs: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    use_beam_search: bool = False
    length_penalty: float | None = None

    stream: bool = False
    stream_options: StreamOptions | None = None

    priority: int = 0
    request_id: str | None = None
    cache_salt: str | None = None
    return_token_ids: bool = False

    # Where a request is silent, the checkpoint's generation_config decides, then these.
    _NEUTRAL: ClassVar[dict[str, float | int]] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
    }

    @model_validator(mode="after")
    def _check_what_goes_with_a_stream(self) -> SamplingFields:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options needs stream=true", param="stream_options")
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidRequestError("prompt_logprobs needs stream=false", param="prompt_logprobs")
        return self

    @model_validator(mode="after")
    def _check_what_goes_with_beams(self) -> SamplingFields:
        if not self.use_beam_search:
            if self.length_penalty not in (None, 1.0):
                raise InvalidRequestError("length_penalty needs use_beam_search", param="length_penalty")
            return self
        for name, neutral in _NOT_WITH_BEAMS.items():
            if getattr(self, name) not in (None, *neutral):
                message = f"{name} has no meaning with use_beam_search, which ranks by the model's own probabilities"
                raise InvalidRequestError(message, param=name)
        return self

    @cached_property
    def constraint(self) -> StructuredOutputsParams | None:
        """What shape the answer must have.

        Raises:
            InvalidRequestError, NotSupportedError: it is not understood; names the field.
        """
        return structured_params(self.structured_outputs, self.response_format)

    @property
    def renamed_fields(self) -> dict[str, str]:
        """Fields of `SamplingParams` that this body writes under another name, for errors."""
        return {} if self.structured_outputs else {"structured_outputs": "response_format"}

    def sampling_params(
        self, *, defaults: dict[str, float | int], max_tokens: int | None, logprobs: int | None
    ) -> SamplingParams:
        """The engine's parameters.

        Args:
            defaults: Sampling defaults of the model, used where the request says nothing.
            max_tokens: None: as many as the context holds.
            logprobs: Number of top tokens to report; None: none.

        Raises:
            InvalidRequestError: A value is out of range.
        """
        chosen = {name: getattr(self, name) for name in self._NEUTRAL}
        values: dict[str, Any] = {
            name: value if value is not None else defaults.get(name, self._NEUTRAL[name])
            for name, value in chosen.items()
        }
        with named(ENGINE_NAMES):
            return SamplingParams(
                **values,
                n=self.n,
                seed=self.seed,
                stop=self.stop,
                stop_token_ids=self.stop_token_ids,
                include_stop_str_in_output=self.include_stop_str_in_output,
                ignore_eos=self.ignore_eos,
                max_tokens=max_tokens,
                min_tokens=self.min_tokens,
                logprobs=logprobs,
                prompt_logprobs=self.prompt_logprobs,
                skip_special_tokens=self.skip_special_tokens,
                spaces_between_special_tokens=self.spaces_between_special_tokens,
                logit_bias=self._logit_bias(),
                structured_outputs=self.constraint,
                logprob_token_ids=self.logprob_token_ids,
                allowed_token_ids=self.allowed_token_ids,
                bad_words=self.bad_words,
                extra_args=self.vllm_xargs,
                thinking_token_budget=self.thinking_token_budget,
                repetition_detection=self._repetition_detection(),
                output_kind=RequestOutputKind.DELTA if self.stream else RequestOutputKind.FINAL_ONLY,
            )

    def beam_search_params(self, params: SamplingParams, room: int) -> BeamSearchParams:
        """The same request as a search.

        Args:
            params: What `sampling_params` made of it.
            room: Tokens that the context has left, for requests that say nothing.

        Raises:
            InvalidRequestError: a value is out of range.
        """
        with named({"beam_width": "n"}):
            return BeamSearchParams(
                beam_width=self.n,
                max_tokens=params.max_tokens or room,
                ignore_eos=self.ignore_eos,
                length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
                include_stop_str_in_output=self.include_stop_str_in_output,
                stop_token_ids=self.stop_token_ids or (),
            )

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_continuous_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    def _repetition_detection(self) -> RepetitionDetectionParams | None:
        asked = self.repetition_detection
        return None if asked is None else RepetitionDetectionParams(**asked.model_dump())

    def _logit_bias(self) -> dict[int, float] | None:
        if self.logit_bias is None:
            return None
        try:
            return {int(token): bias for token, bias in self.logit_bias.items()}
        except ValueError:
            message = "logit_bias keys must be token ids written as whole numbers"
            raise InvalidRequestError(message, param="logit_bias") from None


def text_in(entry: Mapping[str, Any], key: str, where: str) -> str:
    """A text that an entry of a request must have.

    Raises:
        InvalidRequestError: it is missing or no text; names its place.
    """
    value = entry.get(key)
    if not isinstance(value, str):
        raise InvalidRequestError(f"{where}.{key} must be a text", param=f"{where}.{key}")
    return value
