"""Choosing tokens, by sorting the whole vocabulary: slow, plain and exact.

Probability mass is counted in integers (units of 2^-40 of the most probable token), so that sums do not depend on
the order in which they are made and the native kernel, which never sorts, cuts at the same token.
"""

from __future__ import annotations

import math

import torch

_MASS_BITS = 40
_UNIFORM_BITS = 53
# The kernels compare float32 numbers.
GREEDY_TEMPERATURE = torch.tensor(1e-5).item()


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """Id of the largest logit of each row [R, V] -> [R]; ties: the lowest id; -1 for a row with NaN or all -inf."""
    best = logits.argmax(dim=-1)
    broken = logits.isnan().any(dim=-1) | (logits == float("-inf")).all(dim=-1)
    return torch.where(broken, -1, best)


def log_min_p(min_p: torch.Tensor) -> torch.Tensor:
    """Least scaled logit that min_p lets through: log(min_p) rounded to float32, -inf where it is off."""
    return min_p.double().clamp(0, 1).log().float()


def _mass(scaled: torch.Tensor) -> torch.Tensor:
    """Integer probability mass of `scaled` = (logit - max) / temperature <= 0."""
    weight = scaled.double().exp().float()
    return (weight * float(1 << _MASS_BITS)).round().long()


def _survivors(scaled: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Cumulative mass of the tokens that the filters leave; `scaled` is sorted, best first."""
    count = int((scaled >= log_min_p(torch.tensor(min_p))).sum())
    if top_k > 0:
        count = min(count, top_k)
    cumulative = _mass(scaled[:count]).cumsum(0)
    if top_p < 1:
        total = int(cumulative[-1])
        need = min(total, max(1, math.ceil(top_p * float(total))))
        cumulative = cumulative[: int(torch.searchsorted(cumulative, need)) + 1]
    return cumulative


def _sample_row(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> int:
    scaled = (logits - logits.max()) * (1 / torch.tensor(temperature, dtype=logits.dtype))
    scaled, ids = torch.sort(scaled, descending=True, stable=True)
    cumulative = _survivors(scaled, top_k, top_p, min_p)
    target = (int(uniform * (1 << _UNIFORM_BITS)) * int(cumulative[-1])) >> _UNIFORM_BITS
    return int(ids[int(torch.searchsorted(cumulative, target, right=True))])


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """Draw one token a row by the inverse distribution function.

    The filters come in vLLM's order: temperature, min_p (relative to the best token), top_k (exactly k tokens; of
    equal logits the lower id stays), top_p (the shortest prefix with at least that share of what is left). The
    survivors stand in order of falling logit, then rising id, and the token that holds `uniform` of their mass wins.

    Args:
        logits: [R, V].
        temperature: [R]; below 1e-5 the row is greedy.
        top_k: [R] int32; <= 0 is off.
        top_p: [R]; >= 1 is off.
        min_p: [R]; <= 0 is off.
        uniform: [R] in [0, 1).

    Returns:
        [R] int64; -1 for a row with NaN, with all -inf, or (unless greedy) with +inf.
    """
    chosen = argmax(logits)
    for row in range(logits.shape[0]):
        warm = float(temperature[row]) >= GREEDY_TEMPERATURE
        if not warm or chosen[row] < 0:
            continue
        if logits[row].max() == float("inf"):
            chosen[row] = -1
            continue
        chosen[row] = _sample_row(
            logits[row].float(),
            float(temperature[row]),
            int(top_k[row]),
            float(top_p[row]),
            float(min_p[row]),
            float(uniform[row]),
        )
    return chosen


def filtered_logits(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
) -> torch.Tensor:
    """What `sample` draws from: logits over temperature, -inf where a filter leaves a token out.

    Returns:
        [R, V] float32; greedy rows and rows that `sample` refuses as they were.
    """
    out = logits.float().clone()
    broken = argmax(logits) < 0
    for row in range(logits.shape[0]):
        warmth = float(temperature[row])
        if warmth < GREEDY_TEMPERATURE or broken[row] or out[row].max() == float("inf"):
            continue
        scaled = (out[row] - out[row].max()) * (1 / torch.tensor(warmth, dtype=out.dtype))
        scaled, ids = torch.sort(scaled, descending=True, stable=True)
        count = len(_survivors(scaled, int(top_k[row]), float(top_p[row]), float(min_p[row])))
        out[row] /= warmth
        out[row, ids[count:]] = float("-inf")
    return out


def logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log probabilities of the chosen token and of the k most probable ones.

    Args:
        logits: [R, V].
        token_ids: [R] int64.
        k: Number of most probable tokens; 0 gives the chosen one alone.

    Returns:
        values [R, k+1] and ids [R, k+1] int64, the chosen token first, then the best k (falling; of equal ones the
        lower id first); ranks [R] int64 of the chosen token in that order, from 1.
    """
    values = torch.empty(logits.shape[0], k + 1, dtype=torch.promote_types(logits.dtype, torch.float32))
    ids = torch.empty(logits.shape[0], k + 1, dtype=torch.int64)
    ranks = torch.empty(logits.shape[0], dtype=torch.int64)
    for row, token in enumerate(token_ids.tolist()):
        log_softmax = torch.log_softmax(logits[row].double(), dim=-1)
        order = torch.sort(logits[row], descending=True, stable=True).indices
        ids[row, 0], ids[row, 1:] = token, order[:k]
        values[row] = log_softmax[ids[row].to(logits.device)].to(values.dtype)
        ranks[row] = (order == token).nonzero()[0, 0] + 1
    return values.to(logits.device), ids.to(logits.device), ranks.to(logits.device)
