"""What a script does with a loaded model besides asking it: its cache, its memory, its metrics."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.engine.llm_engine import LLMEngine
from octavo.lib.errors import ConfigError

if TYPE_CHECKING:
    from octavo.metrics import EngineMetrics
    from octavo.metrics.reader import Metric


class ControlOfflineMixin:
    """Control of the engine behind an `LLM`."""

    llm_engine: LLMEngine
    _turn: threading.Lock
    _metrics: EngineMetrics | None

    def reset_prefix_cache(self) -> bool:
        """Forget cached pages; False while requests hold some."""
        with self._turn:
            return self.llm_engine.reset_prefix_cache()

    def sleep(self, level: int = 1) -> None:
        """Free memory between two uses of the model; what each level frees is in `docs/sleep.md`.

        Args:
            level: 1: the key-value pages. 2: the weights as well, which `wake_up` reads from their files again.

        Raises:
            InvalidRequestError: another level, or requests are enqueued.
        """
        with self._turn:
            self.llm_engine.sleep(level)

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Bring back what `sleep` freed; prompts are taken once all of it is back.

        Args:
            tags: `weights`, `kv_cache`; None: both.

        Raises:
            InvalidRequestError: an unknown tag, or `kv_cache` is to wake before `weights`.
            OctavoError: the weights cannot be loaded any more.
        """
        with self._turn:
            self.llm_engine.wake_up(tags)

    def is_sleeping(self) -> bool:
        """Whether `wake_up` is needed before the next prompt."""
        return self.llm_engine.is_sleeping

    def get_metrics(self) -> list[Metric]:
        """The values now of all metrics that a server would show at `/metrics`.

        Returns:
            `Counter`, `Gauge` and `Histogram` of `octavo.metrics.reader`.

        Raises:
            ConfigError: they are not counted, which an `LLM` needs `disable_log_stats=False` for.
        """
        if self._metrics is None:
            raise ConfigError(
                "Metrics are counted with LLM(disable_log_stats=False).", param="disable_log_stats"
            )
        from octavo.metrics.reader import read_metrics

        self._metrics.on_sleep(self.llm_engine.sleep_level)
        return read_metrics(self._metrics.registry)
