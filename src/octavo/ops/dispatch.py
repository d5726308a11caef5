"""Which implementation a call takes: the native kernel, or its plain torch twin.

The kernels take float32 tensors on the CPU. Anything else (another device, float64, `reference_mode`, a build without
the extension) goes to the twins. While a step program is recorded, the program stands in for the native module: it has
the module's functions, and notes the calls instead of running them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from octavo.lib.errors import NotSupportedError

_logger = logging.getLogger(__name__)

Native = Any
"""The extension module, or a program that records calls to it."""
Allocate = Callable[..., torch.Tensor]

_module: Native | None = None
try:
    _module = import_module("octavo.ops._native")
except ImportError as error:
    _logger.warning("the native kernels are not built (%s); the slow plain torch ones are used", error)

_forced_reference = False
_recording: Native | None = None
_allocate: Allocate = torch.empty


@contextmanager
def reference_mode() -> Iterator[None]:
    """Within the context every op runs as its torch twin, in every thread of the process."""
    global _forced_reference
    before, _forced_reference = _forced_reference, True
    try:
        yield
    finally:
        _forced_reference = before


@contextmanager
def recording(program: Native, allocate: Allocate) -> Iterator[None]:
    """Within the context ops note their calls in `program`, and get their outputs from `allocate`. One thread only."""
    global _recording, _allocate
    _recording, _allocate = program, allocate
    try:
        yield
    finally:
        _recording, _allocate = None, torch.empty


def native_isa() -> str:
    """The instruction set of the native kernels, also within `reference_mode`; empty if they are not built."""
    return "" if _module is None else str(_module.isa())


def new_output(*shape: int) -> torch.Tensor:
    """An uninitialised float32 tensor for an op's result."""
    return _allocate(*shape)


def native_module() -> Native | None:
    """The extension module, or None when it is not built or `reference_mode` is on."""
    if _recording is not None:
        return _recording
    return None if _forced_reference else _module


def native_for(x: torch.Tensor) -> Native | None:
    """The extension module if its kernels can take `x`, else None: use the twin."""
    if x.dtype is not torch.float32 or not x.is_cpu:
        return None
    return native_module()


def built_module() -> Native:
    """The extension module, also in `reference_mode`: for what has no twin (packed memory, threads).

    Raises:
        NotSupportedError: it is not built.
    """
    if _module is None:
        raise NotSupportedError(
            "the native kernels are not built: run `make setup`, or pip install this package"
        )
    return _module
