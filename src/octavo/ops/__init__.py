"""The ops of a model: torch tensors in, torch tensors out; native kernels on the CPU, plain torch twins elsewhere.

Every output row depends on its own inputs only, to the bit: not on the number of rows, the split, the threads or the
instruction set.
"""

from octavo.ops.activation import act_mul, activation, softcap
from octavo.ops.attention import kv_cache_shapes, paged_attention, write_kv
from octavo.ops.dispatch import reference_mode
from octavo.ops.embedding import embedding
from octavo.ops.experts import ExpertWeights, experts, route
from octavo.ops.groups import pack_groups
from octavo.ops.linear import linear
from octavo.ops.machine import (
    available_isas,
    isa,
    native_available,
    num_threads,
    set_isa,
    set_num_threads,
)
from octavo.ops.norm import layer_norm, rms_norm
from octavo.ops.packing import FORMATS, PackedWeight, pack_weight, quantise_weight
from octavo.ops.rope import rope
from octavo.ops.rows import add, scale, select_rows
from octavo.ops.sampling import argmax, filtered_logits, logprobs, sample
from octavo.ops.token_bitmask import apply_token_bitmask, bitmask_words, token_bitmask
from octavo.platforms import MAX_THREADS

__all__ = [
    "FORMATS",
    "MAX_THREADS",
    "ExpertWeights",
    "PackedWeight",
    "act_mul",
    "activation",
    "add",
    "apply_token_bitmask",
    "argmax",
    "available_isas",
    "bitmask_words",
    "embedding",
    "experts",
    "filtered_logits",
    "isa",
    "kv_cache_shapes",
    "layer_norm",
    "linear",
    "logprobs",
    "native_available",
    "num_threads",
    "pack_groups",
    "pack_weight",
    "paged_attention",
    "quantise_weight",
    "reference_mode",
    "rms_norm",
    "rope",
    "route",
    "sample",
    "scale",
    "select_rows",
    "set_isa",
    "set_num_threads",
    "softcap",
    "token_bitmask",
    "write_kv",
]
