"""From logits to tokens: biases, penalties, random numbers that belong to a request, log probabilities."""

from octavo.sampling.sampler import SampledRow, Sampler
from octavo.sampling.table import SamplingBatch, SamplingTable

__all__ = ["SampledRow", "Sampler", "SamplingBatch", "SamplingTable"]
