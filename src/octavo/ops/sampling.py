"""Choosing tokens from logits, and their log probabilities."""

from __future__ import annotations

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for
from octavo.ops.operands import address, require

_MAX_VOCAB = 1 << 20  # the kernels' integer sums of probability mass hold that many tokens


def _dense_rows(logits: torch.Tensor) -> torch.Tensor:
    require(logits.dim() == 2, "logits must have 2 dimensions (rows, vocabulary), got {}", logits.dim())
    vocab = logits.shape[1]
    require(0 < vocab <= _MAX_VOCAB, "logits have {} columns, must be from 1 to {}", vocab, _MAX_VOCAB)
    return logits if logits.stride(1) == 1 else logits.contiguous()


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """Id of the largest logit of each row: [R, V] -> [R] int64.

    Ties: the lowest id. A row that holds NaN or nothing above -inf gives -1: the caller reports it.
    """
    logits = _dense_rows(logits)
    native = native_for(logits)
    if native is None:
        return reference.argmax(logits)
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64)
    native.argmax(logits.data_ptr(), logits.stride(0), rows, vocab, out.data_ptr())
    return out


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """Draw one token a row by the inverse distribution function; a row depends on its own arguments only.

    Filters in vLLM's order: temperature, min_p (relative to the best token), top_k (exactly k tokens; of equal ones
    the lower id stays), top_p (the shortest prefix with at least that share of what is left). Survivors stand in
    order of falling probability, then rising id; the token that holds `uniform` of their mass wins.

    Args:
        logits: [R, V] float32.
        temperature: [R] float32; below 1e-5 the row is greedy.
        top_k: [R] int32; <= 0 is off.
        top_p: [R] float32; >= 1 is off.
        min_p: [R] float32; <= 0 is off, at most 1.
        uniform: [R] in [0, 1), float64 (or float32, read as float64).

    Returns:
        [R] int64; -1 for a row with NaN, with nothing above -inf, or (unless greedy) with +inf.

    Raises:
        ValueError: A uniform outside of [0, 1), a NaN parameter, or shapes that do not fit.
    """
    logits = _dense_rows(logits)
    rows, vocab = logits.shape
    uniform = uniform.double()
    require(bool(((uniform >= 0) & (uniform < 1)).all()), "uniform must lie in [0, 1)")
    require(
        not bool((temperature + top_p + min_p).isnan().any()), "temperature, top_p and min_p must not be NaN"
    )
    native = native_for(logits)
    if native is None:
        return reference.sample(logits, temperature, top_k, top_p, min_p, uniform)
    log_min_p = reference.log_min_p(min_p)
    out = torch.empty(rows, dtype=torch.int64)
    native.sample(
        logits.data_ptr(),
        logits.stride(0),
        rows,
        vocab,
        address("temperature", temperature, torch.float32, (rows,)),
        address("top_k", top_k, torch.int32, (rows,)),
        address("top_p", top_p, torch.float32, (rows,)),
        address("min_p", log_min_p, torch.float32, (rows,)),
        address("uniform", uniform, torch.float64, (rows,)),
        out.data_ptr(),
    )
    return out


def filtered_logits(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
) -> torch.Tensor:
    """What `sample` draws from: [R, V] float32, logits over temperature, -inf where a filter leaves a token out.

    Only for showing (`--logprobs-mode processed_*`), so there is no kernel: the rows are sorted. Greedy rows stay.
    """
    return reference.filtered_logits(_dense_rows(logits), temperature, top_k, top_p, min_p)


def logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log probabilities of the chosen token and of the k most probable ones.

    Args:
        logits: [R, V].
        token_ids: [R] int64.
        k: Number of most probable tokens, 0 to V.

    Returns:
        values [R, k+1] and ids [R, k+1] int64, the chosen token first, then the best k (falling; of equal ones the
        lower id first); ranks [R] int64 of the chosen token in that order, from 1.

    Raises:
        ValueError: k or an id outside of the vocabulary.
    """
    logits = _dense_rows(logits)
    rows, vocab = logits.shape
    require(0 <= k <= vocab, "k is {}, must lie between 0 and the vocabulary size {}", k, vocab)
    native = native_for(logits)
    if native is None:
        return reference.logprobs(logits, token_ids, k)
    values = torch.empty(rows, k + 1)
    ids = torch.empty(rows, k + 1, dtype=torch.int64)
    ranks = torch.empty(rows, dtype=torch.int64)
    native.logprobs(
        logits.data_ptr(),
        logits.stride(0),
        rows,
        vocab,
        address("token_ids", token_ids, torch.int64, (rows,)),
        k,
        values.data_ptr(),
        ids.data_ptr(),
        ranks.data_ptr(),
    )
    return values, ids, ranks
