"""Bodies of `/score` and `/rerank`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from octavo.entrypoints.openai.protocol.pooling import PoolingFields, VectorList, check_count
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.lib.errors import InvalidRequestError

Texts = str | list[str]


class ScoreRequest(PoolingFields):
    """One text with each of many, or two lists pair by pair; `text_1` and `text_2`, or `queries` and `documents`."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None

    @model_validator(mode="after")
    def _check_texts(self) -> ScoreRequest:
        old, new = (self.text_1, self.text_2), (self.queries, self.documents)
        if sum(None not in pair for pair in (old, new)) != 1 or any(
            None in pair and pair != (None, None) for pair in (old, new)
        ):
            raise InvalidRequestError("give text_1 and text_2, or queries and documents", param="text_1")
        for name, texts in zip(self.names, self.both, strict=True):
            check_count(len(texts), name)
        return self

    @property
    def names(self) -> tuple[str, str]:
        """The fields that were used."""
        return ("text_1", "text_2") if self.text_1 is not None else ("queries", "documents")

    @property
    def both(self) -> tuple[list[str], list[str]]:
        """Their texts."""
        first, second = (getattr(self, name) for name in self.names)
        return _listed(first), _listed(second)


def _listed(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str


class RerankRequest(PoolingFields):
    """Jina's and Cohere's bodies."""

    query: str
    documents: list[str | Document]
    top_n: int | None = Field(default=None, ge=0)
    """How many of the best; 0 or nothing: all."""
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_documents(self) -> RerankRequest:
        check_count(len(self.documents), "documents")
        return self

    @property
    def texts(self) -> list[str]:
        """The documents' texts."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


class Score(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(VectorList):
    data: list[Score]


class RerankResult(BaseModel):
    index: int
    document: Document | None = None
    relevance_score: float


class RerankList(BaseModel):
    id: str
    model: str
    results: list[RerankResult]
    usage: Usage
    meta: dict[str, Any] | None = None
