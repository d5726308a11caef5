"""Writes a Hugging Face model as a GGUF file as llama.cpp's converter would, with the `gguf` package's own writer.

Conventions: llama.cpp, `conversion/` (llama.py, gemma.py, phi.py, base.py). Written against those files, not against
our reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from tests.models.tiny import is_router

_ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MistralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MixtralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen2MoeForCausalLM": gguf.MODEL_ARCH.QWEN2MOE,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "OlmoeForCausalLM": gguf.MODEL_ARCH.OLMOE,
    "Gemma2ForCausalLM": gguf.MODEL_ARCH.GEMMA2,
    "Gemma3ForCausalLM": gguf.MODEL_ARCH.GEMMA3,
    "Phi3ForCausalLM": gguf.MODEL_ARCH.PHI3,
    "SmolLM3ForCausalLM": gguf.MODEL_ARCH.SMOLLM3,
}
_PERMUTED = {gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.SMOLLM3}
_PLUS_ONE = {gguf.MODEL_ARCH.GEMMA2, gguf.MODEL_ARCH.GEMMA3}


def export(
    model: transformers.PreTrainedModel,
    path: Path,
    kind: gguf.GGMLQuantizationType,
    *,
    stacked: bool = True,
    **extra: int,
) -> None:
    """Write `model` to `path`, its matrices as `kind`, everything else as F32; `extra` are more metadata keys.

    Experts lie `stacked` in one tensor, or as before 2024 in a tensor each.
    """
    arch = _ARCHITECTURES[type(model).__name__]
    config = model.config
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _write_settings(writer, config, arch)
    for key, value in extra.items():
        writer.add_uint32(f"{gguf.MODEL_ARCH_NAMES[arch]}.{key}", value)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, parameter in _parameters(model):
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        matrix = parameter.dim() > 1 and not is_router(name)
        writer_kind = kind if matrix else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(_converted(name, parameter.detach(), config, arch).numpy(), writer_kind)
        if "_exps." in target and not stacked:
            for expert, part in enumerate(data):
                writer.add_tensor(target.replace("_exps.", f".{expert}."), part, raw_dtype=writer_kind)
            continue
        writer.add_tensor(target, data, raw_dtype=writer_kind)
    for name, factors in _rope_tensors(config).items():
        writer.add_tensor(name, factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _parameters(model: transformers.PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values; gate and up of experts, which `transformers` holds in one, apart as in checkpoints."""
    for name, parameter in model.named_parameters():
        stem, fused, _ = name.partition("gate_up_proj")
        if ".experts." in name and fused:
            gate, up = parameter.chunk(2, dim=1)
            yield from ((f"{stem}gate_proj.weight", gate), (f"{stem}up_proj.weight", up))
        elif ".experts." in name:
            yield f"{name}.weight", parameter
        else:
            yield name, parameter


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _rope(config: Any) -> dict[str, Any]:
    parameters: dict[str, Any] = config.rope_parameters
    return parameters.get("full_attention", parameters)


def _write_settings(writer: gguf.GGUFWriter, config: Any, arch: gguf.MODEL_ARCH) -> None:
    rope = _rope(config)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch is not gguf.MODEL_ARCH.GEMMA2:
        writer.add_rope_freq_base(rope["rope_theta"])
    _write_experts(writer, config)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if arch in _PERMUTED or arch is gguf.MODEL_ARCH.PHI3:
        writer.add_rope_dimension_count(int(_head_dim(config) * rope.get("partial_rotary_factor", 1.0)))
    if arch in _PERMUTED:
        writer.add_vocab_size(config.vocab_size)
    if arch in _PLUS_ONE or arch is gguf.MODEL_ARCH.PHI3:
        writer.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if arch is gguf.MODEL_ARCH.GEMMA2:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch is gguf.MODEL_ARCH.PHI3:
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    if rope["rope_type"] == "longrope":
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(config.original_max_position_embeddings))
        )


def _write_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    if getattr(config, "num_experts_per_tok", None):
        writer.add_expert_count(getattr(config, "num_experts", None) or config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if getattr(config, "moe_intermediate_size", None):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if getattr(config, "shared_expert_intermediate_size", None):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def _converted(name: str, weight: torch.Tensor, config: Any, arch: gguf.MODEL_ARCH) -> torch.Tensor:
    """The values as the converter stores them."""
    if name.endswith("shared_expert_gate.weight"):
        return weight.squeeze()
    if arch in _PLUS_ONE and name.endswith("norm.weight"):
        return weight + 1
    for projection, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
        if arch in _PERMUTED and projection in name:
            halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
            return halves.transpose(1, 2).reshape(weight.shape).contiguous()
    return weight


def _rope_tensors(config: Any) -> dict[str, np.ndarray]:
    rope = _rope(config)
    if rope["rope_type"] == "longrope":
        return {
            "rope_factors_long.weight": np.array(rope["long_factor"], dtype=np.float32),
            "rope_factors_short.weight": np.array(rope["short_factor"], dtype=np.float32),
        }
    if rope["rope_type"] == "llama3":
        return {"rope_freqs.weight": _llama3_factors(rope, _head_dim(config))}
    return {}


def _llama3_factors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for exponent in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (exponent / head_dim)
        if wavelength < rope["original_max_position_embeddings"] / high:
            factors.append(1.0)
        elif wavelength > rope["original_max_position_embeddings"] / low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)
