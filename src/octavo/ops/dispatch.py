"""Which implementation a call takes: the native kernel, or its plain torch twin.

The kernels take float32 tensors on the CPU. Anything else (another device, float64, `reference_mode`, a build without
the extension) goes to the twins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import torch

from octavo.lib.errors import NotSupportedError

_logger = logging.getLogger(__name__)

_module: ModuleType | None = None
try:
    _module = import_module("octavo.ops._native")
except ImportError as error:
    _logger.warning("the native kernels are not built (%s); the slow plain torch ones are used", error)

_forced_reference = False


@contextmanager
def reference_mode() -> Iterator[None]:
    """Within the context every op runs as its torch twin, in every thread of the process."""
    global _forced_reference
    before, _forced_reference = _forced_reference, True
    try:
        yield
    finally:
        _forced_reference = before


def native_module() -> ModuleType | None:
    """The extension module, or None when it is not built or `reference_mode` is on."""
    return None if _forced_reference else _module


def native_for(x: torch.Tensor) -> ModuleType | None:
    """The extension module if its kernels can take `x`, else None: use the twin."""
    if x.dtype is not torch.float32 or not x.is_cpu:
        return None
    return native_module()


def built_module() -> ModuleType:
    """The extension module, also in `reference_mode`: for what has no twin (packed memory, threads).

    Raises:
        NotSupportedError: it is not built.
    """
    if _module is None:
        raise NotSupportedError(
            "the native kernels are not built: run `make setup`, or pip install this package"
        )
    return _module
