"""Checks of what an op is given, and the addresses that the kernels read. Errors name the argument and what it must be."""

from __future__ import annotations

import torch


def require(condition: bool, message: str, *values: object) -> None:
    """Raise ValueError unless `condition` holds. `values` go into the message's `{}`, and only then: calls are many."""
    if not condition:
        raise ValueError(message.format(*values) if values else message)


def address(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """Address of a dense CPU tensor of that dtype and shape."""
    if tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be a contiguous CPU tensor of {dtype} and shape {shape}, "
            f"got {tensor.dtype}, {tuple(tensor.shape)}, strides {tensor.stride()} on {tensor.device}"
        )
    return tensor.data_ptr()


def dense_heads(name: str, x: torch.Tensor) -> torch.Tensor:
    """[M, heads, head_dim] with dense heads in each row, however far apart the rows are; copied only if it must be."""
    strides = x.stride()
    require(
        len(strides) == 3, "{} must have 3 dimensions (rows, heads, head_dim), got {}", name, len(strides)
    )
    if strides[2] == 1 and strides[1] == x.shape[2]:
        return x
    return x.contiguous()
