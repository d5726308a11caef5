"""Frozen configuration. Facts learned at run time are other values and are never written back here."""

from octavo.config.octavo_config import (
    CacheConfig,
    DenseConfig,
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    ObservabilityConfig,
    OctavoConfig,
    PoolingConfig,
    SchedulerConfig,
    StructuredOutputsConfig,
)

__all__ = [
    "CacheConfig",
    "DenseConfig",
    "DeviceConfig",
    "LoadConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "OctavoConfig",
    "PoolingConfig",
    "SchedulerConfig",
    "StructuredOutputsConfig",
]
