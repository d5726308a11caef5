"""The platform interface and its choice by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

from octavo.lib.errors import ConfigError

ENTRY_POINT_GROUP = "octavo.platforms"


class Platform(Protocol):
    """One kind of device. Facts are read when asked for, as they change while a process runs."""

    name: str

    def is_available(self) -> bool:
        """Whether this machine has the device and this build can drive it."""

    def memory_available(self) -> int:
        """Free bytes of the memory that weights and pages would take."""

    def default_num_threads(self) -> int:
        """Host threads for the kernels."""


def _cpu() -> Platform:
    from octavo.platforms.cpu import CpuPlatform

    return CpuPlatform()


_BUILT_IN: Mapping[str, Callable[[], Platform]] = {"cpu": _cpu}


def select_platform(device: str = "auto") -> Platform:
    """The platform called `device`, or for `auto` the first installed one that this machine has, else `cpu`.

    Raises:
        ConfigError: no platform of that name is installed, or the machine lacks the device.
    """
    makers = {**_plugins(), **_BUILT_IN}
    if device == "auto":
        candidates = (make() for make in makers.values())
        return next(platform for platform in candidates if platform.is_available())
    if device not in makers:
        raise ConfigError(
            f"device must be auto or one of {', '.join(sorted(makers))}, got {device!r}", param="device"
        )
    platform = makers[device]()
    if not platform.is_available():
        raise ConfigError(f"device {device!r} is not usable on this machine", param="device")
    return platform


def _plugins() -> dict[str, Callable[[], Platform]]:
    """Platforms of other packages; a plugin cannot replace a built-in one."""
    return {point.name: _loader(point) for point in entry_points(group=ENTRY_POINT_GROUP)}


def _loader(point: EntryPoint) -> Callable[[], Platform]:
    return lambda: cast("Callable[[], Platform]", point.load())()
