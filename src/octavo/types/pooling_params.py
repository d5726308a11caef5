"""What a client may ask of a model that pools: one vector a prompt instead of an answer. Names are vLLM's."""

from __future__ import annotations

import msgspec

from octavo.lib.errors import InvalidRequestError
from octavo.types.sampling_params import SamplingParams

POOLING_TASKS = ("embed", "classify", "score")
MAX_TOKENS_FIELD = 2**31 - 1

NO_SAMPLING = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
"""What a pooling request has in the place of sampling parameters. No token of it is ever drawn."""


class PoolingParams(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Pooling parameters of one request; checked when made.

    Raises:
        InvalidRequestError: a value is out of its range; `param` names the field and the message its limit.
    """

    task: str | None = None
    """`embed`, `classify` or `score`; None: what the model is for."""
    dimensions: int | None = None
    """The first so many numbers of an embedding (matryoshka), normalised after the cut; None: as the model is set up."""
    use_activation: bool | None = None
    """Whether embeddings are normalised, and scores go through the softmax or sigmoid; None: as the model is set up."""
    truncate_prompt_tokens: int | None = None
    """Cut longer prompts to their first so many tokens, what the tokenizer adds around them included; -1: to the
    model's context; None: refuse what is longer than that."""
    skip_reading_prefix_cache: bool | None = None
    """Compute the whole prompt, also where pages of its beginning are there; None: where the pooling needs that."""

    def __post_init__(self) -> None:
        if self.task is not None and self.task not in POOLING_TASKS:
            _refuse("task", f"must be one of {', '.join(POOLING_TASKS)}, got {self.task!r}")
        for name in ("use_activation", "skip_reading_prefix_cache"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                _refuse(name, f"must be true or false, got {value!r}")
        _whole("dimensions", self.dimensions, 1)
        if self.truncate_prompt_tokens != -1:
            _whole("truncate_prompt_tokens", self.truncate_prompt_tokens, 1, "or -1")


def _refuse(name: str, why: str) -> None:
    raise InvalidRequestError(f"{name} {why}", param=name)


def _whole(name: str, value: int | None, low: int, more: str = "") -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_TOKENS_FIELD:
        _refuse(
            name,
            f"must be a whole number between {low} and {MAX_TOKENS_FIELD} {more}".rstrip()
            + f", got {value!r}",
        )
