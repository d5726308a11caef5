"""The routes of models that pool."""

from __future__ import annotations

from fastapi import APIRouter

from octavo.entrypoints.openai.handlers import pooling, scoring
from octavo.entrypoints.openai.protocol.pooling import (
    ClassificationList,
    CohereEmbeddings,
    EmbeddingList,
    PooledList,
)
from octavo.entrypoints.openai.protocol.scoring import RerankList, ScoreList


def add_pooling_routes(router: APIRouter) -> None:
    """Add them, each under every name that clients know."""
    post = router.post
    post("/v1/embeddings", response_model=EmbeddingList)(pooling.create_embedding)
    post("/v2/embed", response_model=CohereEmbeddings)(pooling.create_cohere_embedding)
    post("/pooling", response_model=PooledList)(pooling.create_pooling)
    post("/classify", response_model=ClassificationList)(pooling.create_classification)
    for path in ("/score", "/v1/score"):
        post(path, response_model=ScoreList)(scoring.create_score)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        post(path, response_model=RerankList)(scoring.rerank)
