"""Octavo: inference and serving of large language models. The public surface; each name is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.args import EngineArgs
    from octavo.engine.async_llm import AsyncLLM
    from octavo.engine.llm_engine import LLMEngine
    from octavo.entrypoints.offline.llm import LLM
    from octavo.types.beam_outputs import BeamSearchOutput, BeamSearchSequence
    from octavo.types.outputs import CompletionOutput, FlatLogprobs, Logprob, RequestMetrics, RequestOutput
    from octavo.types.pooling_outputs import (
        ClassificationRequestOutput,
        EmbeddingRequestOutput,
        PoolingRequestOutput,
        ScoringRequestOutput,
    )
    from octavo.types.pooling_params import PoolingParams
    from octavo.types.sampling_params import (
        BeamSearchParams,
        RepetitionDetectionParams,
        RequestOutputKind,
        SamplingParams,
    )
    from octavo.types.structured_outputs import StructuredOutputsParams

_HOMES = {
    "AsyncLLM": "octavo.engine.async_llm",
    "BeamSearchOutput": "octavo.types.beam_outputs",
    "BeamSearchParams": "octavo.types.sampling_params",
    "BeamSearchSequence": "octavo.types.beam_outputs",
    "ClassificationRequestOutput": "octavo.types.pooling_outputs",
    "CompletionOutput": "octavo.types.outputs",
    "EmbeddingRequestOutput": "octavo.types.pooling_outputs",
    "EngineArgs": "octavo.engine.args",
    "FlatLogprobs": "octavo.types.outputs",
    "LLM": "octavo.entrypoints.offline.llm",
    "LLMEngine": "octavo.engine.llm_engine",
    "Logprob": "octavo.types.outputs",
    "PoolingParams": "octavo.types.pooling_params",
    "PoolingRequestOutput": "octavo.types.pooling_outputs",
    "RepetitionDetectionParams": "octavo.types.sampling_params",
    "RequestMetrics": "octavo.types.outputs",
    "RequestOutput": "octavo.types.outputs",
    "RequestOutputKind": "octavo.types.sampling_params",
    "SamplingParams": "octavo.types.sampling_params",
    "ScoringRequestOutput": "octavo.types.pooling_outputs",
    "StructuredOutputsParams": "octavo.types.structured_outputs",
}

__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "EngineArgs",
    "FlatLogprobs",
    "LLMEngine",
    "Logprob",
    "PoolingParams",
    "PoolingRequestOutput",
    "RepetitionDetectionParams",
    "RequestMetrics",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
