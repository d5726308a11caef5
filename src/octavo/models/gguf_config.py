"""GGUF metadata as Hugging Face settings: one table, so that a family function reads both kinds of checkpoint alike.

Key names: ggml's `docs/gguf.md` and llama.cpp's `llama-arch.cpp`. A key that the table does not know is passed on
under its own name, so that the check for settings nobody read sees it.
"""

from __future__ import annotations

import struct

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.lib.gguf import GGMLType, GGUFFile
from octavo.models.rope_config import FULL_ATTENTION, SLIDING_ATTENTION

_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
}
# Read by the functions below, or only told to humans.
_ELSEWHERE = {
    "vocab_size",
    "attention.value_length",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    "tensor_data_layout",
    "attention.sliding_window_pattern",
}
# Old converters wrote these of dense models.
_NOTHING = (("expert_count", 0), ("expert_used_count", 0))
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
# Tensors that are settings rather than weights: read here, not by the weight loader.
SETTING_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
# Texts of control tokens that end an answer in one model or another (llama.cpp, `llama-vocab.cpp`).
_END_TEXTS = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"),
        *("<EOT>", "[EOT]", "<end_of_utterance>"),
    }
)
_CONTROL_TOKEN = 3
_BIASES = {
    "blk.0.attn_q.bias": "attention_bias",
    "blk.0.attn_qkv.bias": "attention_bias",
    "blk.0.attn_output.bias": "attention_out_bias",
    "blk.0.ffn_up.bias": "mlp_bias",
}


def gguf_settings(file: GGUFFile) -> dict[str, object]:
    """The file's metadata under Hugging Face names; `architectures` is the GGUF architecture name.

    Raises:
        CheckpointError: a key that every model needs is missing or contradicts the tensors.
    """
    arch = file.get_str("general.architecture")
    if "split.count" not in file.metadata and _EMBEDDING not in file.tensors:
        raise CheckpointError(
            "is missing: the file holds no language model", file=str(file.path), tensor=_EMBEDDING
        )
    own = {key[len(arch) + 1 :]: file.metadata[key] for key in file.metadata if key.startswith(f"{arch}.")}
    told = {
        key: value for key, value in own.items() if key not in _ELSEWHERE and (key, value) not in _NOTHING
    }
    settings: dict[str, object] = {_KEYS.get(key, key): value for key, value in told.items()}
    settings |= {"architectures": [arch], "tie_word_embeddings": _OUTPUT not in file.tensors}
    settings |= {setting: True for tensor, setting in _BIASES.items() if tensor in file.tensors}
    if "attention_bias" in settings:
        settings.setdefault("attention_out_bias", False)
    settings["vocab_size"] = _vocab_size(file, own)
    settings |= _layer_kinds(own)
    settings |= _head_settings(file, own)
    settings["rope_scaling"] = _rope_scaling(file, own)
    return settings


def end_token_ids(file: GGUFFile) -> tuple[int, ...]:
    """Ids that end an answer: the declared ones, and control tokens whose text says so."""
    declared = [
        file.get_int(key)
        for key in (
            "tokenizer.ggml.eos_token_id",
            "tokenizer.ggml.eot_token_id",
            "tokenizer.ggml.eom_token_id",
        )
        if key in file.metadata
    ]
    types = file.get_list("tokenizer.ggml.token_type", int, [])
    control = [index for index, kind in enumerate(types) if kind == _CONTROL_TOKEN]
    tokens = file.get_list("tokenizer.ggml.tokens", str, []) if control else []
    by_text = [index for index in control if index < len(tokens) and tokens[index] in _END_TEXTS]
    return tuple(dict.fromkeys(declared + by_text))


def _vocab_size(file: GGUFFile, own: dict[str, object]) -> int:
    rows = file.tensors[_EMBEDDING].shape[0]
    stated = own.get("vocab_size", rows)
    if stated != rows:
        raise CheckpointError(
            f"has {rows} rows, but the metadata speak of {stated} tokens",
            file=str(file.path),
            tensor=_EMBEDDING,
        )
    return rows


def _layer_kinds(own: dict[str, object]) -> dict[str, object]:
    """Which layers slide, told one by one or by a period."""
    pattern = own.get("attention.sliding_window_pattern")
    if not isinstance(pattern, list):
        return {"sliding_window_pattern": pattern}
    return {"layer_types": [SLIDING_ATTENTION if slides else FULL_ATTENTION for slides in pattern]}


def _head_settings(file: GGUFFile, own: dict[str, object]) -> dict[str, object]:
    """`partial_rotary_factor`, and the check that keys and values have heads of one size."""
    key, value = own.get("attention.key_length"), own.get("attention.value_length")
    if key != value:
        raise UnsupportedModelError(
            f"has heads of {key} for keys and {value} for values", file=str(file.path)
        )
    rot_dim = own.get("rope.dimension_count")
    width, heads = own.get("embedding_length"), own.get("attention.head_count")
    if not (isinstance(rot_dim, int) and isinstance(width, int) and isinstance(heads, int) and heads > 0):
        return {}
    head_dim = key if isinstance(key, int) else width // heads
    return {"partial_rotary_factor": rot_dim / head_dim} if head_dim else {}


def _rope_scaling(file: GGUFFile, own: dict[str, object]) -> dict[str, object] | None:
    if "rope_factors_long.weight" in file.tensors:
        return {
            "rope_type": "longrope",
            "long_factor": _floats(file, "rope_factors_long.weight"),
            "short_factor": _floats(file, "rope_factors_short.weight"),
            "attention_factor": own.get("rope.scaling.attn_factor"),
        }
    if "rope_freqs.weight" in file.tensors:
        return {"rope_type": "frequency_factors", "factors": _floats(file, "rope_freqs.weight")}
    kind = own.get("rope.scaling.type", "linear" if "rope.scale_linear" in own else "none")
    if kind == "none":
        return None
    return {"rope_type": kind, "factor": own.get("rope.scaling.factor", own.get("rope.scale_linear"))}


def _floats(file: GGUFFile, name: str) -> list[float]:
    tensor = file.tensors.get(name)
    if tensor is None or tensor.ggml_type is not GGMLType.F32:
        raise CheckpointError("must be there, as F32", file=str(file.path), tensor=name)
    return list(struct.unpack(f"<{tensor.nbytes // 4}f", tensor.data()))
