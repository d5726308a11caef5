"""Pooling requests at the door: checked against the model, with every "as the model is set up" decided. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from octavo.config import ModelConfig, PoolingConfig
from octavo.lib.errors import InvalidRequestError
from octavo.types.pooling_params import PoolingParams

if TYPE_CHECKING:
    from octavo.tokenizers.base import Tokenizer


def check_generates(model: ModelConfig) -> None:
    """Refuse to generate with a model that has no language head.

    Raises:
        InvalidRequestError: says what the model is for.
    """
    if model.runner != "generate":
        assert model.pooling is not None
        raise InvalidRequestError(
            f"The model {model.served_model_names[0]!r} does not generate text: it is served for "
            f"{' and '.join(model.pooling.tasks)} (--runner pooling).",
            param="model",
        )


def pooling_of(model: ModelConfig, task: str | None) -> PoolingConfig:
    """How the model pools.

    Raises:
        InvalidRequestError: it does not, or not for this task; says what it is for.
    """
    name, config = model.served_model_names[0], model.pooling
    if config is None:
        raise InvalidRequestError(
            f"The model {name!r} generates text and is not set up for {task or 'pooling'}: start the server with --runner "
            "pooling, or with --pooler-config to have embeddings beside generation.",
            param="model",
        )
    if task is not None and task not in config.tasks:
        raise InvalidRequestError(
            f"The model {name!r} does not {task}: it is served for {' and '.join(config.tasks)}.",
            param="task",
        )
    return config


def resolve_pooling(model: ModelConfig, params: PoolingParams) -> PoolingParams:
    """The parameters with nothing left open.

    Raises:
        InvalidRequestError: the model cannot do it; names the field and the limit.
    """
    config = pooling_of(model, params.task)
    if params.skip_reading_prefix_cache is False and config.pooling_type != "LAST":
        raise InvalidRequestError(
            f"skip_reading_prefix_cache must not be false: {config.pooling_type} pooling needs every token computed.",
            param="skip_reading_prefix_cache",
        )
    skip = config.pooling_type != "LAST" or bool(params.skip_reading_prefix_cache)
    use = config.use_activation if params.use_activation is None else params.use_activation
    return msgspec.structs.replace(
        params,
        task=params.task or config.task,
        dimensions=_dimensions(config, params.dimensions),
        use_activation=use,
        skip_reading_prefix_cache=skip,
    )


def _dimensions(config: PoolingConfig, asked: int | None) -> int | None:
    if asked is None:
        return config.dimensions
    if config.task != "embed":
        raise InvalidRequestError("dimensions is for embeddings; this model classifies.", param="dimensions")
    if asked > config.size:
        raise InvalidRequestError(
            f"dimensions is {asked}, but an embedding of this model has {config.size} numbers.",
            param="dimensions",
        )
    allowed = config.matryoshka_dimensions
    if asked not in (config.size, config.dimensions) and not config.is_matryoshka:
        raise InvalidRequestError(
            f"dimensions is {asked}, but this model was not trained for fewer than {config.size} (matryoshka); "
            "start the server with --pooler-config '{\"is_matryoshka\": true}' if it was.",
            param="dimensions",
        )
    if allowed and asked not in (config.size, *allowed):
        raise InvalidRequestError(
            f"dimensions is {asked}; this model has {', '.join(map(str, allowed))}.", param="dimensions"
        )
    return asked


def fitted(ids: list[int], params: PoolingParams, max_model_len: int) -> list[int]:
    """A prompt of token ids, cut if the request wants that.

    Raises:
        InvalidRequestError: it is longer than the context; names both.
    """
    limit = truncation(params, max_model_len)
    ids = ids if limit is None else ids[:limit]
    if len(ids) > max_model_len:
        raise InvalidRequestError(
            f"The prompt has {len(ids)} tokens, but the context length is {max_model_len} tokens. Shorten it, or ask for "
            "truncate_prompt_tokens.",
            param="prompt",
        )
    return ids


def truncation(params: PoolingParams, max_model_len: int) -> int | None:
    """Tokens to cut prompts to; None: they are not cut.

    Raises:
        InvalidRequestError: more than the context holds.
    """
    asked = params.truncate_prompt_tokens
    if asked is not None and asked > max_model_len:
        raise InvalidRequestError(
            f"truncate_prompt_tokens is {asked}, but the context length is {max_model_len} tokens.",
            param="truncate_prompt_tokens",
        )
    return max_model_len if asked == -1 else asked


def truncated_ids(tokenizer: Tokenizer, text: str, limit: int | None) -> list[int]:
    """The ids of a text, cut to `limit`; what the tokenizer puts around a text (BOS, EOS) stays around what is left."""
    ids = tokenizer.encode(text)
    if limit is None or len(ids) <= limit:
        return ids
    bare = tokenizer.encode(text, add_special_tokens=False)
    added = len(ids) - len(bare)
    before = next((start for start in range(added + 1) if ids[start : start + len(bare)] == bare), None)
    if before is None or added >= limit:
        return ids[:limit]
    after = ids[before + len(bare) :]
    return ids[:before] + bare[: limit - added] + after
