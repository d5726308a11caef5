"""The order of sampling, as in vLLM: log probabilities of the model's own logits, then bans, biases and penalties, then
temperature, min_p, top_k, top_p and the draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from octavo import ops
from octavo.sampling.edits import add_bias, ban, penalize
from octavo.sampling.table import NO_LOGPROBS, SamplingBatch
from octavo.types.engine import TokenLogprobs


@dataclass(slots=True)
class SampledRow:
    """What came of one row of logits."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None
    """Set where the row cannot be sampled; `token_id` then means nothing."""


class Sampler:
    """Draws one token a row. A row's outcome depends on that row only. The logits are overwritten."""

    def __call__(self, logits: torch.Tensor, batch: SamplingBatch) -> list[SampledRow]:
        """Sample.

        Args:
            logits: [R, V] float32.
            batch: The R rows' parameters.
        """
        # Only requests that want log probabilities pay for a copy, and only where the logits are about to change.
        raw = logits.clone() if batch.wants_logprobs and batch.edits_logits else logits
        _edit(logits, batch)
        tokens = _draw(logits, batch)
        broken = _broken_rows(logits, tokens)
        if broken:
            tokens[broken] = 0
        sampled = [SampledRow(token) for token in tokens.tolist()]
        _attach_logprobs(sampled, raw, tokens, batch.num_logprobs)
        for row in broken:
            sampled[row] = SampledRow(0, error="the model's logits are not finite numbers (NaN or infinite)")
        return sampled


def token_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, counts: list[int]) -> list[TokenLogprobs]:
    """Log probabilities of given tokens and of the most likely ones.

    Args:
        logits: [R, V] float32.
        token_ids: [R] int64, the tokens at these positions.
        counts: [R] how many of the most likely tokens each row wants.
    """
    values, ids, ranks = ops.logprobs(logits, token_ids, max(counts))
    rows = zip(ids.tolist(), values.tolist(), ranks.tolist(), counts, strict=True)
    return [
        TokenLogprobs(row_ids[: k + 1], row_values[: k + 1], rank) for row_ids, row_values, rank, k in rows
    ]


def _edit(logits: torch.Tensor, batch: SamplingBatch) -> None:
    if batch.bias is not None:
        add_bias(logits, batch.bias)
    if batch.penalties is not None:
        penalize(logits, batch.penalties)
    if batch.banned is not None:  # last, so that no bias or penalty can bring a token back
        ban(logits, batch.banned)


def _broken_rows(logits: torch.Tensor, tokens: torch.Tensor) -> list[int]:
    """Rows without a token (the ops give -1 for NaN), or whose token won by an infinite logit."""
    ids = tokens.numpy()
    chosen = logits.numpy()[
        np.arange(len(ids)), ids
    ]  # numpy: a torch operation this small costs several times more
    good = (ids >= 0) & np.isfinite(chosen)
    return [] if good.all() else np.flatnonzero(~good).tolist()


def _draw(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
    if batch.all_greedy:
        return ops.argmax(logits)
    return ops.sample(logits, batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.uniform)


def _attach_logprobs(
    sampled: list[SampledRow], logits: torch.Tensor, tokens: torch.Tensor, counts: list[int]
) -> None:
    rows = [row for row, count in enumerate(counts) if count != NO_LOGPROBS]
    if not rows:
        return
    wanted = token_logprobs(logits[rows], tokens[rows], [counts[row] for row in rows])
    for row, logprobs in zip(rows, wanted, strict=True):
        sampled[row].logprobs = logprobs
