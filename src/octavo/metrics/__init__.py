"""Prometheus metrics under vLLM's names. Every name is exported from the start; what is inactive stays zero."""

from octavo.metrics.engine_metrics import EngineMetrics, RequestSummary

__all__ = ["EngineMetrics", "RequestSummary"]
