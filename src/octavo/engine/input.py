"""From what a caller wrote to what an engine runs: every check is here, at the door. No I/O."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from octavo.config import ModelConfig
from octavo.engine.pooling_input import check_generates, fitted, resolve_pooling, truncated_ids, truncation
from octavo.engine.prompt_embeds import embeds_of
from octavo.engine.token_rules import token_rules
from octavo.lib.errors import InvalidRequestError
from octavo.types.engine import EngineRequest
from octavo.types.pooling_params import NO_SAMPLING, PoolingParams
from octavo.types.sampling_params import MAX_N, SEED_MAX, SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizers.base import Tokenizer


MAX_PRIORITY = 2**31 - 1
# Each takes some hundred bytes in the front: a quarter of a gigabyte.
MAX_PROMPT_LOGPROBS = 1 << 20


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str


class TokensPrompt(TypedDict):
    """A prompt as token ids."""

    prompt_token_ids: list[int]


Prompt = str | Sequence[int] | TextPrompt | TokensPrompt | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One checked request; `children` are its n sequences, in the order of their index."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    sampling: SamplingParams
    """As asked, with `max_tokens` resolved."""
    arrival_time: float
    children: list[EngineRequest] = field(default_factory=list)
    prompt_embeds: bytes = b""
    """See `EngineRequest.prompt_embeds`."""


@dataclass(frozen=True, kw_only=True)
class PoolingRequest(GenerationRequest):
    """One checked request for a vector: a single child, of which no token is sampled."""

    pooling: PoolingParams
    """As asked, resolved for the model."""


class InputProcessor:
    """Makes engine requests out of prompts and sampling parameters.

    Args:
        model: Limits and stop tokens.
        tokenizer: For prompts that are text; None: only token ids are taken.
        max_queued: Sequences that may wait; a request for more of them could never be taken.
        max_queued_tokens: The same of the prompts' tokens; 0: no bound.
    """

    def __init__(
        self,
        model: ModelConfig,
        tokenizer: Tokenizer | None,
        *,
        max_queued: int = MAX_N,
        max_queued_tokens: int = 0,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._max_queued = max_queued
        self._max_queued_tokens = max_queued_tokens
        self._default_max_tokens = dict(model.default_sampling).get("max_tokens")
        self._serials = itertools.count()

    def process(
        self,
        request_id: str,
        prompt: Prompt,
        sampling: SamplingParams,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        arrival_time: float | None = None,
    ) -> GenerationRequest:
        """Check a request and fan it out into its n sequences.

        Raises:
            InvalidRequestError: names the field and the limit.
        """
        check_generates(self._model)
        check_sequences(sampling.n, self._max_queued)
        self._check_has_text(sampling)
        check_extra_args(sampling.extra_args, self._model)
        embeds = embeds_of(prompt, self._model, sampling.n)
        if embeds and sampling.prompt_logprobs is not None:
            raise InvalidRequestError(
                "prompt_logprobs are of tokens, which prompt_embeds are not.", param="prompt_logprobs"
            )
        num_rows = len(embeds) // (4 * max(1, self._model.hidden_size))
        text, ids = (None, [0] * num_rows) if embeds else self._tokens_of(prompt)
        self._check_prompt(ids)
        self._check_prompt_logprobs(sampling, len(ids))
        if sampling.n > 1:
            check_queued_tokens(sampling.n * len(ids), self._max_queued_tokens)
        _check_priority(priority)
        request = GenerationRequest(
            request_id=request_id,
            prompt=text,
            prompt_token_ids=ids,
            sampling=self._resolve(sampling, len(ids)),
            arrival_time=time.monotonic() if arrival_time is None else arrival_time,
            prompt_embeds=embeds,
        )
        request.children.extend(self._fan_out(request, priority, cache_salt))
        return request

    def process_pooling(
        self,
        request_id: str,
        prompt: Prompt,
        params: PoolingParams,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        arrival_time: float | None = None,
    ) -> PoolingRequest:
        """Check a request for a vector.

        Raises:
            InvalidRequestError: names the field and the limit.
        """
        params = resolve_pooling(self._model, params)
        text, ids = self._pooled_tokens(prompt, params)
        self._check_prompt(ids)
        _check_priority(priority)
        request = PoolingRequest(
            request_id=request_id,
            prompt=text,
            prompt_token_ids=fitted(ids, params, self._model.max_model_len),
            sampling=NO_SAMPLING,
            arrival_time=time.monotonic() if arrival_time is None else arrival_time,
            pooling=params,
        )
        child = EngineRequest(
            request_id=f"{request_id}#{next(self._serials)}.0",
            prompt_token_ids=request.prompt_token_ids,
            sampling=NO_SAMPLING,
            arrival_time=request.arrival_time,
            priority=priority,
            cache_salt=cache_salt,
            pooling=params,
        )
        request.children.append(child)
        return request

    def _pooled_tokens(self, prompt: Prompt, params: PoolingParams) -> tuple[str | None, list[int]]:
        """Text is cut while it is read, so that what the tokenizer adds at its end stays."""
        limit = truncation(params, self._model.max_model_len)
        text = (
            prompt.get("prompt")
            if isinstance(prompt, Mapping) and "prompt_token_ids" not in prompt
            else prompt
        )
        if limit is None or self._tokenizer is None or not isinstance(text, str):
            return self._tokens_of(prompt)
        return text, truncated_ids(self._tokenizer, text, limit)

    def _fan_out(
        self, request: GenerationRequest, priority: int, cache_salt: str | None
    ) -> Iterator[EngineRequest]:
        sampling, serial = request.sampling, next(self._serials)
        seed = self._draw_seed(serial) if sampling.seed is None else sampling.seed
        rules = token_rules(sampling, self._tokenizer, self._model)
        for index in range(sampling.n):
            yield EngineRequest(
                # Unlike the caller's own, this id is never used twice: late news of an aborted request is not mistaken.
                request_id=f"{request.request_id}#{serial}.{index}",
                prompt_token_ids=request.prompt_token_ids,
                sampling=_child_sampling(sampling, seed, index),
                stop_token_ids=self._stop_ids(sampling),
                eos_token_ids=[] if sampling.ignore_eos else list(self._model.eos_token_ids),
                arrival_time=request.arrival_time,
                priority=priority,
                cache_salt=cache_salt,
                token_rules=rules,
                prompt_embeds=request.prompt_embeds,
            )

    def _tokens_of(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        """(text if there is one, token ids) of any form of prompt."""
        if isinstance(prompt, Mapping):
            return self._tokens_of_mapping(prompt)
        if isinstance(prompt, str):
            return prompt, self._encode(prompt)
        return None, _checked_ids(prompt)

    def _tokens_of_mapping(self, prompt: Mapping[str, Any]) -> tuple[str | None, list[int]]:
        text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        unknown = set(prompt) - {"prompt", "prompt_token_ids"}
        if unknown:
            raise InvalidRequestError(f"A prompt has no key {sorted(unknown)[0]!r}.", param="prompt")
        if ids is not None:
            return (text if isinstance(text, str) else None), _checked_ids(ids)
        if not isinstance(text, str):
            raise InvalidRequestError("A prompt needs `prompt` (text) or `prompt_token_ids`.", param="prompt")
        return text, self._encode(text)

    def _encode(self, text: str) -> list[int]:
        if self._tokenizer is None:
            raise InvalidRequestError(
                "This engine has no tokenizer: give `prompt_token_ids`.", param="prompt"
            )
        check_text(self._tokenizer, text, self._model.max_model_len)
        return self._tokenizer.encode(text)

    def _check_has_text(self, sampling: SamplingParams) -> None:
        """Stop strings are looked for in text, which nobody could make without a tokenizer."""
        if self._tokenizer is None and sampling.stop:
            raise InvalidRequestError(
                "This engine has no tokenizer, so `stop` cannot be found: give `stop_token_ids`.",
                param="stop",
            )

    def _check_has_tokenizer(self) -> None:
        if self._tokenizer is None:
            raise InvalidRequestError(
                "This engine has no tokenizer, so structured_outputs cannot be held to.",
                param="structured_outputs",
            )

    def _check_prompt_logprobs(self, sampling: SamplingParams, prompt_length: int) -> None:
        """They stay in memory until the answer ends."""
        if sampling.prompt_logprobs is None:
            return
        count = (1 + check_logprobs("prompt_logprobs", sampling.prompt_logprobs, self._model)) * prompt_length
        if count > MAX_PROMPT_LOGPROBS:
            raise InvalidRequestError(
                f"prompt_logprobs is {sampling.prompt_logprobs} for a prompt of {prompt_length} tokens: that is {count} "
                f"log probabilities, and at most {MAX_PROMPT_LOGPROBS} are given at once.",
                param="prompt_logprobs",
            )

    def _check_prompt(self, ids: list[int]) -> None:
        if not ids:
            raise InvalidRequestError("The prompt is empty: it must have at least one token.", param="prompt")
        lowest, highest = min(ids), max(ids)
        if lowest < 0 or highest >= self._model.vocab_size:
            wrong = lowest if lowest < 0 else highest
            raise InvalidRequestError(
                f"Token id {wrong} in the prompt is outside the vocabulary: ids run from 0 to {self._model.vocab_size - 1}.",
                param="prompt",
            )

    def _resolve(self, sampling: SamplingParams, prompt_length: int) -> SamplingParams:
        """Check against this model; `max_tokens` and -1 for "all" become numbers."""
        sampling.check_vocabulary(self._model.vocab_size)
        if sampling.structured_outputs is not None:
            self._check_has_tokenizer()
        return msgspec.structs.replace(
            sampling,
            max_tokens=self._max_tokens(sampling.max_tokens, prompt_length),
            logprobs=self._logprobs("logprobs", sampling.logprobs),
            prompt_logprobs=self._logprobs("prompt_logprobs", sampling.prompt_logprobs),
        )

    def _max_tokens(self, asked: int | None, prompt_length: int) -> int:
        limit = self._model.max_model_len
        room = limit - prompt_length
        if room < 1:
            raise InvalidRequestError(
                f"The prompt has {prompt_length} tokens, but the context length is {limit} tokens and the answer needs "
                f"at least one{f' (max_tokens is {asked})' if asked else ''}. Shorten the prompt.",
                param="prompt",
            )
        if asked is None:
            return min(room, int(self._default_max_tokens or room))
        if asked > room:
            raise InvalidRequestError(
                f"The prompt has {prompt_length} tokens and max_tokens is {asked}: together {prompt_length + asked}, more "
                f"than the context length of {limit} tokens. Shorten the prompt or ask for at most {room} tokens.",
                param="max_tokens",
            )
        return asked

    def _logprobs(self, name: str, asked: int | None) -> int | None:
        return None if asked is None else check_logprobs(name, asked, self._model)

    def _stop_ids(self, sampling: SamplingParams) -> list[int]:
        eos = () if sampling.ignore_eos else self._model.eos_token_ids
        return list(dict.fromkeys([*(sampling.stop_token_ids or ()), *eos]))

    def _draw_seed(self, serial: int) -> int:
        """A seed that follows from the engine's and the request's number: a script run twice gives the same answers."""
        digest = hashlib.blake2b(b"octavo seed %d %d" % (self._model.seed, serial), digest_size=8).digest()
        return int.from_bytes(digest, "little") & SEED_MAX


def check_extra_args(extra: Mapping[str, Any] | None, model: ModelConfig) -> None:
    """Refuse arguments that nobody reads. Which names a logits processor reads is asked where it is, in the engine.

    Raises:
        InvalidRequestError: there is no logits processor.
    """
    if extra and not model.logits_processors:
        raise InvalidRequestError(
            f"extra_args has {next(iter(extra))!r}, but this engine has no logits processor that could read it "
            "(--logits-processors).",
            param="extra_args",
        )


def check_logprobs(name: str, asked: int, model: ModelConfig) -> int:
    """How many log probabilities a position of a request gets; -1 is the whole vocabulary.

    Raises:
        InvalidRequestError: more than are given; names the field `name` and the limit.
    """
    limit, vocabulary = model.max_logprobs, model.vocab_size
    count = vocabulary if asked == -1 else asked
    allowed = vocabulary if limit == -1 else limit
    if not 0 <= count <= allowed:
        shown = "-1 (the whole vocabulary)" if asked == -1 else str(asked)
        raise InvalidRequestError(
            f"{name} is {shown}, but 0 to {allowed} are given (--max-logprobs).", param=name
        )
    return count


def truncated(ids: list[int], limit: int | None, side: str, room: int) -> list[int]:
    """A prompt of at most `limit` tokens.

    Args:
        limit: None: the prompt stays; -1: as many as fit.
        side: Which end is cut off, `left` or `right`.
        room: Tokens that fit into the context beside the answer.

    Raises:
        InvalidRequestError: the limit is no number of tokens that fit.
    """
    if limit is None:
        return ids
    if (
        isinstance(limit, bool)
        or not isinstance(limit, int)
        or (limit != -1 and not 1 <= limit <= max(room, 1))
    ):
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1 or between 1 and {max(room, 1)} (what the context leaves beside max_tokens), "
            f"got {limit!r}.",
            param="truncate_prompt_tokens",
        )
    if side not in ("left", "right"):
        raise InvalidRequestError(
            f"truncation_side must be left or right, got {side!r}.", param="truncation_side"
        )
    keep = max(room, 1) if limit == -1 else limit
    return ids[-keep:] if side == "left" else ids[:keep]


def check_text(tokenizer: Tokenizer, text: str, max_model_len: int) -> None:
    """Refuse a text that is certainly too long before the time is spent to read it.

    Raises:
        InvalidRequestError: names the limit.
    """
    if not tokenizer.may_fit(text, max_model_len):
        raise InvalidRequestError(
            f"The prompt has {len(text)} characters, more than a context length of {max_model_len} tokens can hold. "
            "Shorten the prompt.",
            param="prompt",
        )


def check_sequences(count: int, max_queued: int, param: str = "n") -> None:
    """Refuse more sequences at once than may ever wait: to try again later would not help.

    Raises:
        InvalidRequestError: names the limit.
    """
    if count > max_queued:
        raise InvalidRequestError(
            f"The request is for {count} answers, but at most {max_queued} may wait (--max-num-queued-reqs).",
            param=param,
        )


def check_queued_tokens(count: int, max_queued: int, param: str = "n") -> None:
    """Refuse more prompt tokens at once, over several sequences, than may ever wait. A single prompt may always wait alone.

    Raises:
        InvalidRequestError: names the limit.
    """
    if max_queued and count > max_queued:
        raise InvalidRequestError(
            f"The request's answers have {count} prompt tokens together, but at most {max_queued} may wait "
            "(--max-num-queued-tokens).",
            param=param,
        )


def default_sampling_params(model: ModelConfig, **changes: Any) -> SamplingParams:
    """Parameters of a request that says nothing: the model's `generation_config.json` over our defaults.

    `max_tokens` is None, which `InputProcessor` reads as: as many as the generation config or the context allow.
    """
    values: dict[str, Any] = {**dict(model.default_sampling), "max_tokens": None, **changes}
    return SamplingParams(**values)


def _child_sampling(sampling: SamplingParams, seed: int, index: int) -> SamplingParams:
    """The parameters of one of n sequences: its own seed, and prompt log probabilities only once."""
    return msgspec.structs.replace(
        sampling,
        n=1,
        seed=(seed + index + SEED_MAX + 1) % (2 * (SEED_MAX + 1)) - SEED_MAX - 1,
        prompt_logprobs=sampling.prompt_logprobs if index == 0 else None,
    )


def _check_priority(priority: int) -> None:
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidRequestError(
            f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, got {priority}.", param="priority"
        )


def _checked_ids(ids: object) -> list[int]:
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes)):
        raise InvalidRequestError(
            f"Prompt token ids must be a list of integers, got {type(ids).__name__}.", param="prompt"
        )
    for item in ids:
        if not isinstance(item, int) or isinstance(item, bool):
            raise InvalidRequestError(f"Prompt token ids must be integers, got {item!r}.", param="prompt")
    return list(ids)
