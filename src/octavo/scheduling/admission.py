"""What may enter: a request that can never run is refused at once, with the numbers that say why."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.lib.errors import InvalidRequestError
from octavo.types.engine import EngineRequest


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The longest sequences that model, pool and step can take."""

    max_model_len: int
    """Tokens of prompt and answer together."""
    max_kv_tokens: int
    """Tokens that one request can keep in the cache when it has the pool to itself."""
    max_first_step: int | None
    """Tokens that a step must take at once; None where prefill may be chunked."""
    pool: str
    """The pool in words, for messages."""

    def max_total_tokens(self, request: EngineRequest) -> int:
        """The length of prompt and answer at which the request ends, if nothing ends it before.

        Raises:
            InvalidRequestError: the request can never run as it stands.
        """
        if request.pooling is not None:
            return self._pooled_tokens(request)
        self._check_prompt(request)
        total = self.max_model_len
        if request.sampling.max_tokens is not None:
            total = min(total, len(request.prompt_token_ids) + request.sampling.max_tokens)
        return self._check_pool(request, total)

    def _pooled_tokens(self, request: EngineRequest) -> int:
        """The length of a prompt that is pooled: every token is computed, none is added."""
        known = len(request.prompt_token_ids)
        limits = (
            (self.max_model_len, "the model's context"),
            (self.max_kv_tokens, f"what the key-value cache holds of one request: {self.pool}"),
            (self.max_first_step, "what a step takes without chunked prefill (max_num_batched_tokens)"),
        )
        if not known:
            raise InvalidRequestError("the prompt is empty", param="prompt")
        for limit, what in limits:
            if limit is not None and known > limit:
                raise InvalidRequestError(
                    f"the prompt has {known} tokens, more than the {limit} of {what}", param="prompt"
                )
        return known

    def _check_prompt(self, request: EngineRequest) -> None:
        known = len(request.prompt_token_ids) + len(request.output_token_ids)
        max_tokens = request.sampling.max_tokens
        if not request.prompt_token_ids:
            raise InvalidRequestError("the prompt is empty", param="prompt")
        if known >= self.max_model_len:
            raise InvalidRequestError(
                f"the prompt has {known} tokens, which leaves no room for an answer: "
                f"the model's context is {self.max_model_len} tokens",
                param="prompt",
            )
        if max_tokens is not None and len(request.output_token_ids) >= max_tokens:
            raise InvalidRequestError(
                f"output_token_ids has {len(request.output_token_ids)} tokens already; max_tokens is {max_tokens}",
                param="output_token_ids",
            )
        if self.max_first_step is not None and known > self.max_first_step:
            raise InvalidRequestError(
                f"the prompt has {known} tokens; without chunked prefill a step takes at most "
                f"{self.max_first_step} (max_num_batched_tokens)",
                param="prompt",
            )

    def _check_pool(self, request: EngineRequest, total: int) -> int:
        """Compare with the pool. An answer without `max_tokens` simply ends where the pool does."""
        prompt, max_tokens = len(request.prompt_token_ids), request.sampling.max_tokens
        limit = self.max_kv_tokens + 1  # the last token of an answer is never fed back
        fits = prompt + len(request.output_token_ids) < limit
        if total <= limit or (fits and max_tokens is None):
            return min(total, limit)
        asked = "" if max_tokens is None else f" with max_tokens {max_tokens}"
        raise InvalidRequestError(
            f"a prompt of {prompt} tokens{asked} can never fit the key-value cache, "
            f"which holds {self.max_kv_tokens} tokens of one request ({self.pool})",
            param="max_tokens" if fits else "prompt",
        )
