"""Tiny random checkpoints for pooling, made by `transformers`, and what it makes of them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch
import transformers

SHAPE: dict[str, Any] = {
    "vocab_size": 301,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}


@functools.cache
def model(architecture: str, **settings: Any) -> transformers.PreTrainedModel:
    """A random model in float32 with weights large enough to show. Do not change it."""
    torch.manual_seed(7)
    kind = getattr(transformers, architecture)
    made = kind(kind.config_class(**SHAPE, **settings)).eval()
    for name, parameter in made.named_parameters():
        with torch.no_grad():
            if parameter.dim() == 1:
                parameter.uniform_(0.3, 0.9)
            else:
                parameter.normal_(std=0.4 if "embed" in name else 1.5 / parameter.shape[-1] ** 0.5)
    return made


def saved(folder: Path, architecture: str, **settings: Any) -> Path:
    """The model's checkpoint."""
    model(architecture, **settings).save_pretrained(folder)
    return folder


def hidden_states(architecture: str, ids: list[int], **settings: Any) -> torch.Tensor:
    """[n, H] after the final norm."""
    made = model(architecture, **settings)
    body = made if architecture.endswith("Model") else made.model
    with torch.no_grad():
        states: torch.Tensor = body(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    return states


def add_modules(folder: Path, pooling: dict[str, Any], *more: str, old: bool = False) -> Path:
    """Sentence Transformers' files beside a checkpoint: a pooling, then modules such as `Normalize`."""
    kinds = ["Transformer", "Pooling", *more]
    entries = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.{'models' if old else 'base.modules.' + kind.lower()}.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **pooling}))
    return folder
