"""Bodies of `/v1/embeddings`, `/pooling`, `/classify` and Cohere's `/v2/embed`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, model_validator

from octavo.entrypoints.openai.protocol.fields import Body
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.lib.errors import InvalidRequestError
from octavo.types.pooling_params import PoolingParams

MAX_INPUTS = 2048
MAX_TOTAL_TOKENS = 1 << 20
Encoding = Literal["float", "base64", "bytes", "bytes_only"]
Inputs = str | list[int] | list[str] | list[list[int]]


class PoolingFields(Body):
    """What every request for vectors may say beside its texts."""

    model: str | None = None
    truncate_prompt_tokens: int | None = None
    use_activation: bool | None = None
    add_special_tokens: bool = True
    priority: int = 0
    request_id: str | None = None
    cache_salt: str | None = None

    def pooling_params(self, task: str | None, **more: Any) -> PoolingParams:
        """The engine's parameters.

        Raises:
            InvalidRequestError: a value is out of range.
        """
        return PoolingParams(
            task=task,
            use_activation=self.use_activation,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            **more,
        )


class InputFields(PoolingFields):
    """Texts, token ids, or one conversation that the chat template renders."""

    input: Inputs | None = None
    messages: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_inputs(self) -> InputFields:
        if (self.input is None) == (self.messages is None):
            raise InvalidRequestError("give either input or messages", param="input")
        if self.messages is not None and not self.messages:
            raise InvalidRequestError("messages must hold at least one message", param="messages")
        if self.messages is None:
            check_count(len(self.inputs), "input")
        if self.continue_final_message and self.add_generation_prompt:
            message = "continue_final_message and add_generation_prompt exclude each other"
            raise InvalidRequestError(message, param="continue_final_message")
        return self

    @property
    def inputs(self) -> list[str | list[int]]:
        """The inputs one by one, whichever of the four forms they came in."""
        given = self.input
        if given is None:
            return []
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            return [given]
        return list(given)  # type: ignore[arg-type]

    @property
    def text_field(self) -> str:
        """The field that the texts came in, for errors."""
        return "input" if self.messages is None else "messages"


class EncodedFields(InputFields):
    """How vectors are written: numbers, or little-endian float32 in base64 or as they are."""

    encoding_format: Encoding = "float"
    embed_dtype: Literal["float32"] = "float32"
    endianness: Literal["native", "little"] = "little"
    dimensions: int | None = None
    normalize: bool | None = None
    """vLLM's older name of `use_activation`."""

    @model_validator(mode="after")
    def _check_names(self) -> EncodedFields:
        if self.normalize is not None and self.use_activation not in (None, self.normalize):
            raise InvalidRequestError("normalize and use_activation contradict each other", param="normalize")
        if self.use_activation is None:
            self.use_activation = self.normalize
        return self


class EmbeddingRequest(EncodedFields):
    """`/v1/embeddings`."""


class PoolingBody(EncodedFields):
    """`/pooling`: whatever the model is for."""

    task: str | None = None


class ClassificationRequest(InputFields):
    """`/classify`."""


class CohereEmbedRequest(Body):
    """`/v2/embed` as Cohere has it, for texts."""

    model: str | None = None
    texts: list[str]
    input_type: Literal["search_document", "search_query", "classification", "clustering"] | None = None
    """Taken and without effect: what a model wants before a text, the client writes there."""
    embedding_types: list[Literal["float", "base64"]] | None = None
    output_dimension: int | None = None
    max_tokens: int | None = None
    truncate: Literal["NONE", "END"] = "END"
    priority: int = 0
    request_id: str | None = None
    cache_salt: str | None = None

    @model_validator(mode="after")
    def _check_texts(self) -> CohereEmbedRequest:
        check_count(len(self.texts), "texts")
        return self


def check_count(count: int, field: str) -> None:
    """Refuse no input, and too many.

    Raises:
        InvalidRequestError: names the field and the limit.
    """
    if not 1 <= count <= MAX_INPUTS:
        raise InvalidRequestError(f"{field} takes 1 to {MAX_INPUTS} inputs, got {count}", param=field)


class VectorList(BaseModel):
    """What the answers have in common beside their `data`."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    usage: Usage


class Embedding(BaseModel):
    index: int
    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str


class EmbeddingList(VectorList):
    data: list[Embedding]


class Pooled(BaseModel):
    index: int
    object: Literal["pooling"] = "pooling"
    data: list[float] | str


class PooledList(VectorList):
    data: list[Pooled]


class Classification(BaseModel):
    index: int
    label: str | None
    probs: list[float]
    num_classes: int


class ClassificationList(VectorList):
    data: list[Classification]


class CohereEmbeddings(BaseModel):
    id: str
    embeddings: dict[str, Any]
    texts: list[str]
    meta: dict[str, Any]
    response_type: Literal["embeddings_by_type"] = "embeddings_by_type"
