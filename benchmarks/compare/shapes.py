"""Models of known shapes with random weights, for the figures that no file of the registries gives.

They are written once into a folder and found there again. Tokenizers are SmolLM2's, padded to the shape's vocabulary: peers
that insist on one get one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEVIATION = 0.02  # of the weights, as a fresh model has them; larger ones make every logit infinite


@dataclass(frozen=True)
class Shape:
    """A Llama of this size, or with experts a Mixtral. Fields are those of a Hugging Face configuration."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    rope_theta: float
    num_local_experts: int = 0
    num_experts_per_tok: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "bfloat16",
        }


SMOLLM2 = Shape("smollm2-135m", 576, 1536, 30, 9, 3, 49152, 100_000.0)
LLAMA_1B = Shape("llama-3.2-1b", 2048, 8192, 16, 32, 8, 128256, 500_000.0)
# As wide for its depth as Mixtral 8x7B, with a billion weights. As a GGUF file only.
MIXTRAL_1B = Shape(
    "mixtral-8x130m", 1024, 3584, 12, 16, 4, 49152, 1_000_000.0, num_local_experts=8, num_experts_per_tok=2
)
SHAPES = {shape.name: shape for shape in (SMOLLM2, LLAMA_1B, MIXTRAL_1B)}


def checkpoint(shape: Shape, folder: Path) -> Path:
    """A folder with the shape in bfloat16 safetensors; written if it is not there yet."""
    target = folder / f"{shape.name}-bf16"
    if not (target / "config.json").exists():
        _write_checkpoint(shape, target)
    return target


def _write_checkpoint(shape: Shape, target: Path) -> None:
    import torch
    from safetensors.torch import save_file

    target.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.ones(size, dtype=torch.bfloat16)
        if len(size) == 1
        else (torch.randn(size, generator=generator) * DEVIATION).to(torch.bfloat16)
        for name, size in tensor_sizes(shape).items()
    }
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    # Last, because its presence says that the folder is complete.
    (target / "config.json").write_text(json.dumps(shape.config(), indent=2))


def tensor_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Hugging Face's names of a Llama's tensors, and their sizes (outputs first)."""
    hidden = shape.hidden_size
    queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab_size, hidden)}
    for layer in range(shape.num_hidden_layers):
        sizes |= {
            f"model.layers.{layer}.{name}.weight": size
            for name, size in {
                "input_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "post_attention_layernorm": (hidden,),
                **_ffn_sizes(shape),
            }.items()
        }
    return sizes | {"model.norm.weight": (hidden,)}


def _ffn_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Experts are stacked, as in GGUF files."""
    experts, hidden, inner = shape.num_local_experts, shape.hidden_size, shape.intermediate_size
    if not experts:
        gate_up, down = (inner, hidden), (hidden, inner)
        return {"mlp.gate_proj": gate_up, "mlp.up_proj": gate_up, "mlp.down_proj": down}
    return {
        "mlp.gate": (experts, hidden),
        "mlp.experts.gate_proj": (experts, inner, hidden),
        "mlp.experts.up_proj": (experts, inner, hidden),
        "mlp.experts.down_proj": (experts, hidden, inner),
    }
