"""Tiny checkpoints as AutoAWQ, AutoGPTQ, llm-compressor and DeepSeek's tools write them, and the floats they stand for."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.models import tiny
from tests.ops.group_weights import GroupWeight, in_order, in_words

Tensors = dict[str, torch.Tensor]
E4M3_LARGEST = 448.0


@dataclass(frozen=True)
class Kind:
    """One way to quantise: what a matrix [rows, cols] becomes, with the floats it stands for, and `quantization_config`."""

    quantise: Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]
    config: dict[str, object]


def rounded(
    weight: torch.Tensor, bits: int, group: int, *, symmetric: bool, dtype: torch.dtype
) -> GroupWeight:
    """Round to nearest between a group's extremes; `group` 0 is a row."""
    rows, cols = weight.shape
    group = group or cols
    padded = torch.nn.functional.pad(weight, (0, -cols % group)).view(rows, -1, group)
    top = (1 << bits) - 1
    if symmetric:
        scale = (padded.abs().amax(-1) / (top // 2)).to(dtype)
        zero = torch.full(scale.shape, 1 << (bits - 1))
    else:
        low, high = padded.amin(-1).clamp(max=0), padded.amax(-1).clamp(min=0)
        scale = ((high - low) / top).to(dtype)
        zero = (-low / scale.float()).round().clamp(0, top).long()
    q = (padded / scale.float()[..., None]).round().long() + zero[..., None]
    return GroupWeight(q.clamp(0, top).view(rows, -1)[:, :cols], zero, scale, group)


def awq(weight: torch.Tensor, group: int) -> tuple[Tensors, torch.Tensor]:
    w = rounded(weight, 4, group, symmetric=False, dtype=torch.float16)
    return {
        "qweight": in_order(w.q, 4, "awq"),
        "qzeros": in_order(w.zero, 4, "awq"),
        "scales": w.scale.T.contiguous(),
    }, w.values


def gptq(
    weight: torch.Tensor, group: int, *, bits: int = 4, symmetric: bool = True, less: int = 1
) -> tuple[Tensors, torch.Tensor]:
    """`less`: what zero points are stored less by."""
    w = rounded(weight, bits, group, symmetric=symmetric, dtype=torch.float16)
    zero = w.zero.clamp(min=less)  # AutoGPTQ cannot store a zero of 0
    w = GroupWeight(w.q, zero, w.scale, w.group)
    return {
        "qweight": in_order(w.q, bits, "gptq"),
        "qzeros": in_words(w.zero.T.contiguous() - less, bits),
        "scales": w.scale.T.contiguous(),
        "g_idx": (torch.arange(weight.shape[1]) // w.group).int(),
    }, w.values


def packed_int(weight: torch.Tensor, group: int, *, symmetric: bool) -> tuple[Tensors, torch.Tensor]:
    w = rounded(weight, 4, group, symmetric=symmetric, dtype=torch.bfloat16)
    tensors = {
        "weight_packed": in_words(w.q, 4),
        "weight_scale": w.scale,
        "weight_shape": torch.tensor(weight.shape),
    }
    if not symmetric:
        tensors["weight_zero_point"] = in_words(w.zero.T.contiguous(), 4).T.contiguous()
    return tensors, w.values


def int8(weight: torch.Tensor, *, per_row: bool) -> tuple[Tensors, torch.Tensor]:
    largest = weight.abs().amax(1, keepdim=True) if per_row else weight.abs().max().view(1)
    scale = largest / 127
    q = (weight / scale).round().to(torch.int8)
    return {"weight": q, "weight_scale": scale}, scale * q.float()


def fp8(weight: torch.Tensor, rows: int, cols: int, name: str) -> tuple[Tensors, torch.Tensor]:
    """A scale for `rows` x `cols` weights; 0: for all of them. One scale for everything is a number without shape."""
    rows, cols = rows or weight.shape[0], cols or weight.shape[1]
    if (rows, cols) == weight.shape:
        scale = weight.abs().max() / E4M3_LARGEST
        wide = scale
    else:
        padded = torch.nn.functional.pad(weight, (0, -weight.shape[1] % cols, 0, -weight.shape[0] % rows))
        blocks = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // cols, cols)
        scale = blocks.abs().amax((1, 3)) / E4M3_LARGEST
        wide = scale.repeat_interleave(rows, 0).repeat_interleave(cols, 1)
        wide = wide[: weight.shape[0], : weight.shape[1]]
    q = (weight / wide).to(torch.float8_e4m3fn)
    return {"weight": q, name: scale}, wide * q.float()


def gptq_config(group: int, **changes: object) -> dict[str, object]:
    return {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": group or -1,
        "damp_percent": 0.1,
        "desc_act": False,
        "static_groups": False,
        "sym": True,
        "true_sequential": True,
        "model_name_or_path": None,
        "model_file_base_name": "model",
        "checkpoint_format": "gptq",
        **changes,
    }


def awq_config(group: int) -> dict[str, object]:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": None,
    }


def compressed_config(
    fmt: str, activations: dict[str, object] | None, **weights: object
) -> dict[str, object]:
    scheme = {
        "input_activations": activations,
        "output_activations": None,
        "targets": ["Linear"],
        "weights": {
            "actorder": None,
            "block_structure": None,
            "dynamic": False,
            "group_size": None,
            "num_bits": 8,
            "observer": "minmax",
            "observer_kwargs": {},
            "symmetric": True,
            **weights,
        },
    }
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": scheme},
        "format": fmt,
        "global_compression_ratio": 1.5,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


def token_activations(kind: str) -> dict[str, object]:
    return {
        "actorder": None,
        "block_structure": None,
        "dynamic": True,
        "group_size": None,
        "num_bits": 8,
        "observer": None,
        "observer_kwargs": {},
        "strategy": "token",
        "symmetric": True,
        "type": kind,
    }


def fp8_config(**changes: object) -> dict[str, object]:
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", **changes}


INTS, FLOATS = token_activations("int"), token_activations("float")
_FP8 = functools.partial(fp8, name="weight_scale")
KINDS = {
    "awq-128": Kind(functools.partial(awq, group=128), awq_config(128)),
    "awq-32": Kind(functools.partial(awq, group=32), awq_config(32)),
    "gptq-128": Kind(functools.partial(gptq, group=128), gptq_config(128)),
    "gptq-64-asymmetric": Kind(
        functools.partial(gptq, group=64, symmetric=False), gptq_config(64, sym=False)
    ),
    "gptq-row": Kind(functools.partial(gptq, group=0), gptq_config(0, desc_act=True)),
    "gptq-v2": Kind(functools.partial(gptq, group=32, less=0), gptq_config(32, checkpoint_format="gptq_v2")),
    "gptq-8": Kind(functools.partial(gptq, group=128, bits=8), gptq_config(128, bits=8)),
    "w4a16": Kind(
        functools.partial(packed_int, group=128, symmetric=True),
        compressed_config("pack-quantized", None, num_bits=4, type="int", strategy="group", group_size=128),
    ),
    "w4a16-asymmetric": Kind(
        functools.partial(packed_int, group=32, symmetric=False),
        compressed_config(
            "pack-quantized", None, num_bits=4, type="int", strategy="group", group_size=32, symmetric=False
        ),
    ),
    "w8a8": Kind(
        functools.partial(int8, per_row=True),
        compressed_config("int-quantized", INTS, type="int", strategy="channel"),
    ),
    "w8a8-tensor": Kind(
        functools.partial(int8, per_row=False),
        compressed_config("int-quantized", INTS, type="int", strategy="tensor"),
    ),
    "fp8-tensor": Kind(functools.partial(_FP8, rows=0, cols=0), fp8_config()),
    "fp8-block": Kind(
        functools.partial(fp8, rows=128, cols=128, name="weight_scale_inv"),
        fp8_config(weight_block_size=[128, 128]),
    ),
    "fp8-channel": Kind(
        functools.partial(_FP8, rows=1, cols=0),
        compressed_config("float-quantized", FLOATS, type="float", strategy="channel"),
    ),
    "fp8-block-compressed": Kind(
        functools.partial(_FP8, rows=128, cols=128),
        compressed_config(
            "float-quantized", FLOATS, type="float", strategy="block", block_structure=[128, 128]
        ),
    ),
}


def wide_llama() -> transformers.PreTrainedModel:
    """Matrices of more than one group: 160 and 352 columns, neither a multiple of 128, but for AWQ."""
    return _llama(160, 352)


@functools.cache
def _llama(hidden: int, inner: int) -> transformers.PreTrainedModel:
    settings = tiny.tiny_config("LlamaForCausalLM") | {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": hidden // 32,
        "num_key_value_heads": hidden // 32,
        "head_dim": 32,
    }
    torch.manual_seed(hidden)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            with torch.no_grad():
                parameter.normal_(
                    std=0.4 if "embed" in name or "lm_head" in name else 1.5 / parameter.shape[-1] ** 0.5
                )
    return model


def reference_for(kind: str) -> transformers.PreTrainedModel:
    """The float model that is quantised. AutoAWQ wants whole groups."""
    return _llama(256, 384) if kind.startswith("awq") else wide_llama()


def write(
    model: transformers.PreTrainedModel, kind: Kind, folder: Path, **settings: object
) -> transformers.PreTrainedModel:
    """Save the quantised checkpoint; returns the model with the floats that its weights stand for."""
    model.save_pretrained(folder)
    floats = load_file(folder / "model.safetensors")
    tensors: Tensors = {}
    for name, weight in floats.items():
        if weight.dim() > 1 and ".layers." in name and not tiny.is_router(name):
            stored, floats[name] = kind.quantise(weight)
            tensors |= {f"{name.removesuffix('weight')}{key}": value for key, value in stored.items()}
        else:
            tensors[name] = weight
    save_file(floats, folder / "model.safetensors")
    meant = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {"quantization_config": kind.config | settings}
    (folder / "config.json").write_text(json.dumps(config))
    return meant
