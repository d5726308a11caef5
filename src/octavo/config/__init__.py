"""Frozen configuration. Facts learned at run time are other values and are never written back here."""

from octavo.config.octavo_config import (
    CacheConfig,
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    ObservabilityConfig,
    OctavoConfig,
    SchedulerConfig,
)

__all__ = [
    "CacheConfig",
    "DeviceConfig",
    "LoadConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "OctavoConfig",
    "SchedulerConfig",
]
