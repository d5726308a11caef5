"""Class `LLM`: a model inside a script."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from octavo.config.logging import ensure_logging
from octavo.engine.args import ENGINE_FIELDS, EngineArgs
from octavo.engine.flags import synonyms
from octavo.engine.llm_engine import LLMEngine
from octavo.entrypoints.offline.beam_search import BeamSearchOfflineMixin
from octavo.entrypoints.offline.collector import Collector
from octavo.entrypoints.offline.control import ControlOfflineMixin
from octavo.entrypoints.offline.generate import OfflineInferenceMixin
from octavo.entrypoints.offline.pooling import PoolingOfflineMixin
from octavo.lib.errors import ConfigError

if TYPE_CHECKING:
    from octavo.metrics import EngineMetrics

# A script hands over all its prompts at once; to refuse some because many wait would be of no use to it.
_UNBOUNDED_QUEUE = 2**31 - 1
_SYNONYMS = synonyms(EngineArgs)


class LLM(BeamSearchOfflineMixin, PoolingOfflineMixin, OfflineInferenceMixin, ControlOfflineMixin):
    """A loaded model that answers prompts.

    Args:
        model: Folder in Hugging Face's layout, or a .gguf file; None: the embedded default model.
        own_process: Run the engine in a process of its own.
        **engine_args: Fields of `EngineArgs`, such as `max_model_len=4096`, by their own or vLLM's names.

    Raises:
        ConfigError: settings that are unknown or cannot work.
        CheckpointError: the model's files are damaged or not supported.
    """

    def __init__(self, model: str | None = None, *, own_process: bool = False, **engine_args: Any) -> None:
        engine_args = {_SYNONYMS.get(name, name): value for name, value in engine_args.items()}
        unknown = sorted(set(engine_args) - ENGINE_FIELDS)
        if unknown:
            raise ConfigError(f"LLM has no setting {unknown[0]!r}; see octavo.EngineArgs.", param=unknown[0])
        ensure_logging("octavo")
        settings = {"max_num_queued_reqs": _UNBOUNDED_QUEUE, "disable_log_stats": True, **engine_args}
        self._set_up(
            LLMEngine.from_engine_args(EngineArgs(model=model, **settings), own_process=own_process),
            counts=not settings["disable_log_stats"],
        )

    @classmethod
    def from_engine(cls, engine: LLMEngine) -> LLM:
        """An `LLM` over an engine that exists already."""
        llm = cls.__new__(cls)
        llm._set_up(engine, counts=True)
        return llm

    def _set_up(self, engine: LLMEngine, *, counts: bool) -> None:
        self.llm_engine = engine
        self._request_numbers = itertools.count()
        self._turn = threading.Lock()
        self._collector = Collector(engine)
        self._metrics = _metrics_of(engine) if counts else None

    def shutdown(self) -> None:
        """Free the model and stop its process, if it has one. May be called twice."""
        self.llm_engine.shutdown()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()


def _metrics_of(engine: LLMEngine) -> EngineMetrics:
    """Metrics that follow an engine from now on."""
    from octavo.entrypoints.openai.stats import MetricsListener, metrics_of

    metrics = metrics_of(engine.config)
    engine.add_listener(MetricsListener(metrics))
    return metrics
