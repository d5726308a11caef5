"""Executors run plans on one or more workers."""

from octavo.executor.base import Executor, LoadedModel
from octavo.executor.uniproc import UniprocExecutor

__all__ = ["Executor", "LoadedModel", "UniprocExecutor"]
