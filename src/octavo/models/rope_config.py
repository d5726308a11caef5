"""Rope settings in their spellings: 4.x (`rope_theta`, `rope_scaling`), 5.x (`rope_parameters`, also one per layer type)."""

from __future__ import annotations

import math

from octavo.layers.parts import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    LongRope,
    NoScaling,
    Rope,
    RopeScaling,
)
from octavo.models.config_values import ConfigValues

FULL_ATTENTION, SLIDING_ATTENTION = "full_attention", "sliding_attention"


def read_rope(hf: ConfigValues, head_dim: int, max_position: int, default_theta: float) -> Rope:
    """The rope of a model whose layers all have the same."""
    return _rope(_parameters(hf), hf, head_dim, max_position, default_theta)


def read_layer_ropes(
    hf: ConfigValues, head_dim: int, max_position: int, default_theta: float, default_local: float
) -> tuple[Rope, Rope]:
    """The ropes of full and of sliding-window layers (Gemma 3). Scaling in the 4.x form means the full ones."""
    per_type = hf.sub("rope_parameters")
    if FULL_ATTENTION in per_type or SLIDING_ATTENTION in per_type:
        full, local = per_type.sub(FULL_ATTENTION), per_type.sub(SLIDING_ATTENTION)
        return (
            _rope(full, hf, head_dim, max_position, default_theta),
            _rope(local, hf, head_dim, max_position, default_local),
        )
    theta = hf.float("rope_local_base_freq", default_local)
    return read_rope(hf, head_dim, max_position, default_theta), Rope(theta, head_dim)


def scaled_positions(rope: Rope, max_position: int) -> int:
    """The longest sequence: linear scaling stretches what the model was trained on, the other kinds state it already."""
    if isinstance(rope.scaling, LinearScaling):
        return int(max_position * rope.scaling.factor)
    return max_position


def _parameters(hf: ConfigValues) -> ConfigValues:
    if "rope_parameters" in hf:
        return hf.sub("rope_parameters")
    return hf.sub("rope_scaling")


def _rope(
    params: ConfigValues, hf: ConfigValues, head_dim: int, max_position: int, default_theta: float
) -> Rope:
    theta = params.float("rope_theta", hf.float("rope_theta", default_theta))
    share = params.float("partial_rotary_factor", hf.float("partial_rotary_factor", 1.0))
    scaling = _scaling(params, hf, max_position)
    return Rope(theta, rot_dim=int(head_dim * share), scaling=scaling)


def _scaling(params: ConfigValues, hf: ConfigValues, max_position: int) -> RopeScaling:
    kind = params.str("rope_type", params.str("type", "default"))
    params.get("type")
    if kind == "default":
        return NoScaling()
    if kind == "linear":
        return LinearScaling(params.float("factor"))
    if kind == "llama3":
        return Llama3Scaling(
            factor=params.float("factor"),
            low_freq_factor=params.float("low_freq_factor"),
            high_freq_factor=params.float("high_freq_factor"),
            original_max_position=params.int("original_max_position_embeddings"),
        )
    if kind == "frequency_factors":
        return FrequencyFactors(tuple(params.list("factors", float) or ()))
    if kind in ("longrope", "su"):
        return _long_rope(params, hf, max_position)
    raise params.unsupported("rope_type", f"is {kind!r}; default, linear, llama3 and longrope are supported")


def _long_rope(params: ConfigValues, hf: ConfigValues, max_position: int) -> LongRope:
    short, long = params.list("short_factor", float), params.list("long_factor", float)
    if not short or not long or len(short) != len(long):
        raise params.error("short_factor", "and long_factor must be lists of the same length")
    original = params.int("original_max_position_embeddings", None) or hf.int(
        "original_max_position_embeddings", max_position
    )
    factor = params.float("factor", max_position / original)
    # The formula of the LongRoPE paper's code, as Phi-3 uses it.
    default = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return LongRope(
        short=tuple(short),
        long=tuple(long),
        original_max_position=original,
        attention_factor=params.float("attention_factor", default),
    )
