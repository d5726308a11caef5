"""Activation functions, the gated product, and soft-capping."""

from __future__ import annotations

import torch

from octavo.ops import reference
from octavo.ops.dispatch import native_for, new_output
from octavo.ops.operands import require

_CODES = {"silu": 0, "gelu_tanh": 1, "gelu": 2}


def code_of(act: str) -> int:
    """The kernels' number of an activation."""
    if act not in _CODES:
        raise ValueError(f"act is {act!r}, must be one of {', '.join(_CODES)}")
    return _CODES[act]


def activation(x: torch.Tensor, act: str) -> torch.Tensor:
    """`act(x)`, element by element; `act` is `silu`, `gelu_tanh` or `gelu` (the erf form)."""
    code = code_of(act)
    native = native_for(x)
    if native is None:
        return reference.activation(x, act)
    cols = x.shape[-1]
    source = x.contiguous()
    out = new_output(*x.shape)
    native.act_mul(source.data_ptr(), 0, out.data_ptr(), source.numel() // max(cols, 1), cols, cols, code)
    return out


def act_mul(gate_up: torch.Tensor, act: str) -> torch.Tensor:
    """`act(gate) * up` of [M, 2 * I], where each row is gate | up -> [M, I]."""
    code = code_of(act)
    rows, width = gate_up.shape
    require(width % 2 == 0, "gate_up has {} columns, must be an even number: gate | up", width)
    native = native_for(gate_up)
    if native is None:
        return reference.act_mul(gate_up, act)
    if gate_up.stride(1) != 1:
        gate_up = gate_up.contiguous()
    cols = width // 2
    out = new_output(rows, cols)
    gate = gate_up.data_ptr()
    native.act_mul(gate, gate + 4 * cols, out.data_ptr(), rows, cols, gate_up.stride(0), code)
    return out


def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """`cap * tanh(x / cap)`: keeps values within (-cap, cap) (Gemma 2). `cap` > 0."""
    require(cap > 0, f"cap is {cap}, must be above 0")
    native = native_for(x)
    if native is None:
        return reference.softcap(x, cap)
    cols = x.shape[-1]
    source = x.contiguous()
    out = new_output(*x.shape)
    native.softcap(source.data_ptr(), out.data_ptr(), source.numel() // max(cols, 1), cols, cap)
    return out
