"""The order of sampling, as in vLLM: log probabilities of the model's own logits, then allowed tokens, biases, logits processors,
penalties and bans, then temperature, min_p, top_k, top_p and the draw. docs/sampling.md has it with each field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octavo import ops
from octavo.sampling.edits import add_bias, ban, force, penalize
from octavo.sampling.processors import ProcessorChain
from octavo.sampling.table import NO_LOGPROBS, SamplingBatch
from octavo.types.engine import TokenLogprobs
from octavo.types.sampling_params import GREEDY_EPSILON


@dataclass(slots=True)
class SampledRow:
    """What came of one row of logits."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None
    """Set where the row cannot be sampled; `token_id` then means nothing."""
    error_type: str | None = None
    """Class of `error`; None: an internal error."""


class Sampler:
    """Draws one token a row. A row's outcome depends on that row only. The logits are overwritten.

    Args:
        logprobs_mode: What is reported as log probabilities (`ModelConfig.logprobs_mode`).
        processors: Logits processors of the user.
    """

    def __init__(self, logprobs_mode: str = "raw_logprobs", processors: ProcessorChain | None = None) -> None:
        self.processors = processors or ProcessorChain()
        self.reports_logits = logprobs_mode.endswith("logits")
        self._reports_processed = logprobs_mode.startswith("processed")

    def __call__(self, logits: torch.Tensor, batch: SamplingBatch) -> list[SampledRow]:
        """Sample.

        Args:
            logits: [R, V] float32.
            batch: The R rows' parameters.
        """
        # Only requests that want log probabilities pay for a copy, and only where the logits are about to change.
        keeps_raw = batch.wants_logprobs and batch.edits_logits and not self._reports_processed
        raw = logits.clone() if keeps_raw else logits
        if batch.processor_rows:
            self.processors.start(batch.processor_rows)
        _edit(logits, batch, self.processors)
        temperature = self._temper(logits, batch)
        tokens = _draw(logits, batch, temperature)
        broken = _broken_rows(logits, tokens)
        if broken:
            tokens[broken] = 0
        sampled = [SampledRow(token) for token in tokens.tolist()]
        self._attach_logprobs(sampled, raw, tokens, batch, temperature)
        for row in broken:
            sampled[row] = SampledRow(0, error="the model's logits are not finite numbers (NaN or infinite)")
        return sampled

    def _temper(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        """The temperatures that are left to draw with, once processors that want to see them applied have done so."""
        if batch.all_greedy or not (batch.processor_rows and self.processors.has_invariant):
            return batch.temperature
        warm = batch.temperature >= GREEDY_EPSILON
        cold = logits[~warm]
        logits /= torch.where(warm, batch.temperature, 1.0)[:, None]
        self.processors.apply_invariant(logits)
        logits[~warm] = cold
        return torch.where(warm, 1.0, batch.temperature)

    def _attach_logprobs(
        self,
        sampled: list[SampledRow],
        logits: torch.Tensor,
        tokens: torch.Tensor,
        batch: SamplingBatch,
        temperature: torch.Tensor,
    ) -> None:
        rows = [row for row, count in enumerate(batch.num_logprobs) if count != NO_LOGPROBS]
        if not rows:
            return
        reported = logits[rows]
        if self._reports_processed:
            filters = (batch.top_k[rows], batch.top_p[rows], batch.min_p[rows])
            reported = ops.filtered_logits(reported, temperature[rows], *filters)
        wanted = token_logprobs(
            reported,
            tokens[rows],
            [batch.num_logprobs[row] for row in rows],
            asked=[batch.asked[row] for row in rows] if batch.asked else (),
            as_logits=self.reports_logits,
        )
        for row, logprobs in zip(rows, wanted, strict=True):
            sampled[row].logprobs = logprobs


def token_logprobs(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    counts: list[int],
    *,
    asked: Sequence[torch.Tensor | None] = (),
    as_logits: bool = False,
) -> list[TokenLogprobs]:
    """Log probabilities of given tokens, of the most likely ones, and of those asked for by id.

    Args:
        logits: [R, V] float32.
        token_ids: [R] int64, the tokens at these positions.
        counts: [R] how many of the most likely tokens each row wants.
        asked: [R] ids that each row wants, or none at all.
        as_logits: Give the logits themselves.
    """
    values, ids, ranks = ops.logprobs(logits, token_ids, max(counts))
    chosen = logits.gather(1, token_ids[:, None])
    # What a logit lies above its log probability: the same for all tokens of a row.
    level = torch.where(chosen.isfinite(), chosen - values[:, :1], 0.0)
    if as_logits:
        values = logits.gather(1, ids)
    rows = zip(ids.tolist(), values.tolist(), ranks.tolist(), counts, strict=True)
    found = [
        TokenLogprobs(row_ids[: k + 1], row_values[: k + 1], rank) for row_ids, row_values, rank, k in rows
    ]
    for row, wanted in enumerate(asked):
        if wanted is not None:
            _add_asked(found[row], logits[row], wanted, 0.0 if as_logits else float(level[row]))
    return found


def _add_asked(found: TokenLogprobs, logits: torch.Tensor, wanted: torch.Tensor, level: float) -> None:
    """Add the tokens of `wanted` that are not among those found."""
    missing = wanted[~torch.isin(wanted, torch.tensor(found.token_ids))]
    if not len(missing):
        return
    own = logits[missing]
    found.token_ids += missing.tolist()
    found.logprobs += (own - level).tolist()
    found.asked_ranks = [_rank(logits, token) for token in missing.tolist()]


def _rank(logits: torch.Tensor, token: int) -> int:
    """Place of a token by falling logit, then rising id, from 1."""
    value = logits[token]
    return 1 + int((logits > value).sum()) + int((logits[:token] == value).sum())


def _edit(logits: torch.Tensor, batch: SamplingBatch, processors: ProcessorChain) -> None:
    if batch.masks is not None:
        ops.apply_token_bitmask(logits, batch.masks.bits, batch.masks.rows)
    if batch.bias is not None:
        add_bias(logits, batch.bias)
    if batch.processor_rows:
        processors.apply(logits)
    if batch.penalties is not None:
        penalize(logits, batch.penalties)
    if batch.banned is not None:  # last, so that no bias or penalty can bring a token back
        ban(logits, batch.banned)
    if batch.grammar is not None:
        ops.apply_token_bitmask(logits, batch.grammar.bits, batch.grammar.rows)
    force(logits, batch.forced)


def _broken_rows(logits: torch.Tensor, tokens: torch.Tensor) -> list[int]:
    """Rows without a token (the ops give -1 for NaN), or whose token won by an infinite logit."""
    ids = tokens.numpy()
    chosen = logits.numpy()[
        np.arange(len(ids)), ids
    ]  # numpy: a torch operation this small costs several times more
    good = (ids >= 0) & np.isfinite(chosen)
    return [] if good.all() else np.flatnonzero(~good).tolist()


def _draw(logits: torch.Tensor, batch: SamplingBatch, temperature: torch.Tensor) -> torch.Tensor:
    if batch.all_greedy:
        return ops.argmax(logits)
    return ops.sample(logits, temperature, batch.top_k, batch.top_p, batch.min_p, batch.uniform)
