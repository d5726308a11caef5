"""The plain torch twin of every op: the statement of what each kernel computes. They run on any device and dtype."""

from octavo.ops.reference.activation import act_mul, activation, softcap
from octavo.ops.reference.attention import paged_attention, write_kv
from octavo.ops.reference.embedding import embedding
from octavo.ops.reference.experts import experts, route
from octavo.ops.reference.groups import group_quants, group_values
from octavo.ops.reference.linear import linear
from octavo.ops.reference.norm import layer_norm, rms_norm
from octavo.ops.reference.quantise import quantise_weight
from octavo.ops.reference.rope import rope
from octavo.ops.reference.rows import add, scale, select_rows
from octavo.ops.reference.sampling import argmax, filtered_logits, log_min_p, logprobs, sample
from octavo.ops.reference.token_bitmask import apply_token_bitmask

__all__ = [
    "act_mul",
    "activation",
    "add",
    "apply_token_bitmask",
    "argmax",
    "embedding",
    "experts",
    "filtered_logits",
    "group_quants",
    "group_values",
    "layer_norm",
    "linear",
    "log_min_p",
    "logprobs",
    "paged_attention",
    "quantise_weight",
    "rms_norm",
    "rope",
    "route",
    "sample",
    "scale",
    "select_rows",
    "softcap",
    "write_kv",
]
