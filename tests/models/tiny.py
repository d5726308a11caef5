"""Tiny random models of every family, made by `transformers` from the families' own `TINY` dictionaries."""

from __future__ import annotations

import copy
import functools
import importlib
from pathlib import Path

import torch
import transformers

from octavo.models import registry
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model

NAMES = sorted(registry.discover("TINY"))


def tiny_config(name: str) -> dict[str, object]:
    """The settings of one entry of `TINY`; its name is an architecture, `+` and a variant."""
    module = importlib.import_module(f"octavo.models.families.{registry.discover('TINY')[name]}")
    settings: dict[str, object] = module.TINY[name]
    return settings


@functools.cache
def reference(name: str) -> transformers.PreTrainedModel:
    """The model in float32, its weights large enough that every part shows in the logits. Do not change it."""
    model_class = getattr(transformers, name.partition("+")[0])
    torch.manual_seed(sum(name.encode()))
    model = model_class(model_class.config_class(**tiny_config(name))).eval()
    for parameter_name, parameter in model.named_parameters():
        with torch.no_grad():
            _randomise(parameter_name, parameter)
    return model


@functools.cache
def rounded_reference(name: str, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """The same with its matrices (but routers) rounded to `dtype`, computing in float32 all the same."""
    model = copy.deepcopy(reference(name))
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() > 1 and not is_router(parameter_name):
            parameter.data = parameter.data.to(dtype).float()
    return model


def is_router(name: str) -> bool:
    """Whether a parameter scores experts: GGUF files keep those in float32."""
    return name.endswith((".mlp.gate.weight", ".shared_expert_gate.weight"))


def _randomise(name: str, parameter: torch.Tensor) -> None:
    if parameter.dim() == 1:
        # Norm weights away from 0 and from 1, so that `w` and `1 + w` cannot be mixed up; biases that matter.
        parameter.uniform_(0.3, 0.9) if "norm" in name else parameter.normal_(std=0.3)
    elif "embed" in name or "lm_head" in name:
        parameter.normal_(std=0.4)
    else:
        parameter.normal_(std=1.5 / parameter.shape[-1] ** 0.5)


def reference_logits(model: transformers.PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """Logits [n, vocab] of `transformers` after each token."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def load(path: Path, max_model_len: int | None = None) -> Decoder:
    """A checkpoint as the engine loads it."""
    hf = HFConfig.from_path(str(path))
    spec = registry.build_spec(hf)
    return load_model(str(path), hf, spec.limited_to(max_model_len) if max_model_len else spec)


def random_tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 256, (count,), generator=generator).tolist()
