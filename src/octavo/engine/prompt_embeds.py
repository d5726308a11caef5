"""Prompts as rows of the embedding: what a model's embedding layer would give for each token, scales included."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from octavo.config import ModelConfig
from octavo.lib.errors import CheckpointError, InvalidRequestError
from octavo.lib.safetensors import parse_safetensors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Every one of n answers carries its prompt to the engine.
MAX_EMBEDS_BYTES = 256 << 20
_PARAM = "prompt_embeds"


class EmbedsPrompt(TypedDict):
    """A prompt as rows [T, H] of the embedding."""

    prompt_embeds: Any


def embeds_of(prompt: object, model: ModelConfig, n: int) -> bytes:
    """The rows [T, H] of a prompt that is given as such, as little-endian float32; empty for any other prompt.

    Raises:
        InvalidRequestError: they are not enabled, or not finite numbers of the model's width, or too many.
    """
    if not isinstance(prompt, Mapping) or _PARAM not in prompt:
        return b""
    check_enabled(model)
    if set(prompt) != {_PARAM}:
        raise InvalidRequestError("A prompt with prompt_embeds has no other key.", param="prompt")
    rows = _as_array(prompt[_PARAM])
    if rows.ndim != 2 or rows.shape[1] != model.hidden_size or not len(rows):
        raise InvalidRequestError(
            f"prompt_embeds must have the shape [tokens, {model.hidden_size}], got {list(rows.shape)}.",
            param=_PARAM,
        )
    check_size(rows.nbytes, n)
    _check_finite(rows)
    return rows.astype("<f4", copy=False).tobytes()


def check_size(nbytes: int, n: int) -> None:
    """Refuse more bytes of float32, over all n answers, than one request may send to the engine.

    Raises:
        InvalidRequestError: names the limit.
    """
    if nbytes * n > MAX_EMBEDS_BYTES:
        raise InvalidRequestError(
            f"prompt_embeds are {nbytes} bytes as float32, {n} times; at most {MAX_EMBEDS_BYTES} are taken.",
            param=_PARAM,
        )


def check_enabled(model: ModelConfig) -> None:
    """Refuse prompts of this kind where the operator did not ask for them.

    Raises:
        InvalidRequestError: says with which flag they are taken.
    """
    if not model.enable_prompt_embeds:
        raise InvalidRequestError("prompt_embeds are taken with --enable-prompt-embeds only.", param=_PARAM)


def read_embeds(text: str) -> NDArray[np.float32]:
    """The one tensor of a safetensors file (F32, F16 or BF16) in base64.

    Raises:
        InvalidRequestError: it is something else.
    """
    try:
        tensors = parse_safetensors(base64.b64decode(text, validate=True), _PARAM).tensors
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError(f"prompt_embeds must be base64: {error}.", param=_PARAM) from error
    except CheckpointError as error:
        raise InvalidRequestError(f"{error.message}.", param=_PARAM) from error
    if len(tensors) != 1:
        raise InvalidRequestError(f"prompt_embeds must hold one tensor, got {len(tensors)}.", param=_PARAM)
    (tensor,) = tensors.values()
    return _floats(tensor.dtype, tensor.data()).reshape(tensor.shape)


def _floats(dtype: str, data: memoryview) -> NDArray[np.float32]:
    import numpy as np

    if dtype == "F32":
        return np.frombuffer(data, "<f4")
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    raise InvalidRequestError(f"prompt_embeds must be F32, F16 or BF16, got {dtype}.", param=_PARAM)


def _as_array(value: Any) -> NDArray[np.float32]:
    """An array, or a tensor of torch, which is not imported for it."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().float().cpu().numpy()
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"prompt_embeds must be a tensor, got {type(value).__name__}.", param=_PARAM
        ) from error


def _check_finite(rows: NDArray[np.float32]) -> None:
    import numpy as np

    if not np.isfinite(rows).all():
        raise InvalidRequestError("prompt_embeds must be finite numbers.", param=_PARAM)
