"""Makes sure that nothing escapes a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from octavo.lib.errors import NotSupportedError


class ViewsOnly(TorchFunctionMode):
    """Refuses torch operations that compute something: they would run once, at recording, and never again.

    What remains are questions about a tensor and views of it. (A `TorchDispatchMode` would see more finely, but costs
    seconds of imports.)
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the operation.

        Raises:
            NotSupportedError: it made or changed a tensor.
        """
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        made = [t for t in _tensors(result) if not _is_view_of(t, args)]
        if made or _writes(name) or "out" in (kwargs or {}):
            raise NotSupportedError(
                f"torch's {name} cannot be recorded: inside a forward pass everything that computes is an op of octavo.ops"
            )
        return result


def _writes(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _tensors(result: Any) -> list[torch.Tensor]:
    found = result if isinstance(result, (tuple, list)) else [result]
    return [item for item in found if isinstance(item, torch.Tensor)]


def _is_view_of(tensor: torch.Tensor, args: Sequence[Any]) -> bool:
    storage = tensor.untyped_storage().data_ptr()
    return any(isinstance(arg, torch.Tensor) and arg.untyped_storage().data_ptr() == storage for arg in args)
