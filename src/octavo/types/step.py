"""Messages between the scheduler and an executor: the plan of one step and what came of it."""

from __future__ import annotations

import msgspec

from octavo.types.engine import TokenLogprobs, TokenRules
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams


class NewRequest(msgspec.Struct, array_like=True, kw_only=True):
    """A request that enters the persistent batch (first time, or again after a preemption)."""

    request_id: str
    token_ids: list[int]
    """All known tokens: the prompt, then what was generated before a preemption or a restart."""
    num_prompt_tokens: int
    num_computed_tokens: int
    """Tokens whose keys and values already lie in `block_ids` (prefix-cache hits)."""
    block_ids: list[list[int]]
    """Per page group, the pages from position 0 on (page i holds tokens i*block_size...). 0 is the null page."""
    sampling: SamplingParams
    stop_token_ids: list[int]
    """Ids that `min_tokens` must hold back."""
    pooling: PoolingParams | None = None
    """Set where the hidden states are pooled and no token is sampled."""
    token_rules: TokenRules = TokenRules()
    prompt_embeds: bytes = b""
    """See `EngineRequest.prompt_embeds`."""


class StepPlan(msgspec.Struct, array_like=True, kw_only=True):
    """What to run in one step. A request's tokens [computed, computed + scheduled) are fed to the model.

    If that range reaches the last known token, the position is sampled and one new token comes back; of a pooling
    request its vector.
    """

    step_id: int
    released: list[str]
    """Finished, aborted or preempted since the last plan: drop their state first."""
    new_requests: list[NewRequest]
    num_scheduled_tokens: dict[str, int]
    """Also the order of the batch. Holds new and running requests alike."""
    new_block_ids: dict[str, list[list[int]]]
    """Pages to append per group, for running requests that got any."""
    num_steps: int = 1
    """Decode steps that may be run on this plan, one token a request each: more than 1 only where every request is
    scheduled for its last known token, draws plainly, and has pages for as many tokens."""

    @property
    def total_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


class RequestStep(msgspec.Struct, array_like=True, kw_only=True):
    """What one step brought to one scheduled request."""

    request_id: str
    token_ids: list[int]
    """Newly sampled tokens, up to the plan's `num_steps`; empty while the prefill is not through."""
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    error: str | None = None
    """This request alone failed (say, NaN logits); the others are good."""
    pooled: bytes | None = None
    """Of a pooling request whose last token this was: its vector in little-endian float32."""
    forced_token_ids: list[int] = []
    """Tokens that the answer's grammar leaves no choice about: they follow `token_ids`, and are not computed yet."""
    ended: bool = False
    """The answer's grammar is complete: nothing can follow."""
    error_type: str | None = None
    """Class of `error` in the hierarchy of `lib/errors.py`; None: an internal error."""


class StepOutput(msgspec.Struct, array_like=True, kw_only=True):
    """One `RequestStep` for each scheduled request, in the plan's order."""

    step_id: int
    results: list[RequestStep]
