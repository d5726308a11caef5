"""Activations in plain torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
}


def activation(x: torch.Tensor, act: str) -> torch.Tensor:
    """`act(x)`, element by element; `act` is `silu`, `gelu_tanh` or `gelu` (the erf form)."""
    return _ACTIVATIONS[act](x)


def act_mul(gate_up: torch.Tensor, act: str) -> torch.Tensor:
    """`act(gate) * up` where the last dimension of `gate_up` is gate | up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return activation(gate, act) * up


def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """`cap * tanh(x / cap)`: keeps values within (-cap, cap) (Gemma 2)."""
    return torch.tanh(x / cap) * cap
