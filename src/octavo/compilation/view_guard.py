"""Makes sure that nothing escapes a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from octavo.lib.errors import NotSupportedError

# `lift_fresh` wraps memory that a tensor is made from.
_VIEWS = frozenset(
    {
        "aten::alias",
        "aten::as_strided",
        "aten::detach",
        "aten::expand",
        "aten::lift_fresh",
        "aten::narrow",
        "aten::permute",
        "aten::select",
        "aten::slice",
        "aten::split",
        "aten::split_with_sizes",
        "aten::squeeze",
        "aten::t",
        "aten::transpose",
        "aten::unsqueeze",
        "aten::view",
    }
)


class ViewsOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its hooks untyped
    """Refuses torch operations that compute something: they would run once, at recording, and never again."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let views pass.

        Raises:
            NotSupportedError: the operation is no view.
        """
        name = getattr(func, "_schema").name  # noqa: B009 (torch types it as absent)
        if name not in _VIEWS:
            raise NotSupportedError(
                f"{name} cannot be recorded: inside a forward pass everything that computes is an op of octavo.ops"
            )
        return func(*args, **(kwargs or {}))
