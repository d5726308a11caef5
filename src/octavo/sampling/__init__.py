"""From logits to tokens: biases, penalties, random numbers that belong to a request, log probabilities, logits processors."""

from octavo.sampling.processors import (
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
    ProcessorChain,
)
from octavo.sampling.sampler import SampledRow, Sampler
from octavo.sampling.table import SamplingBatch, SamplingTable

__all__ = [
    "AdapterLogitsProcessor",
    "BatchUpdate",
    "LogitsProcessor",
    "MoveDirectionality",
    "ProcessorChain",
    "SampledRow",
    "Sampler",
    "SamplingBatch",
    "SamplingTable",
]
