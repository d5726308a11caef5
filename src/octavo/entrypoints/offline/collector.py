"""Who gets which output: calls that wait for their own requests, and requests that were only enqueued."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from octavo.engine.llm_engine import LLMEngine
from octavo.lib.errors import EngineDeadError
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_outputs import PoolingRequestOutput

Output = RequestOutput | PoolingRequestOutput


class Collector:
    """Steps an engine for one caller at a time and keeps the outputs that others will ask for."""

    def __init__(self, engine: LLMEngine) -> None:
        self._engine = engine
        self.enqueued: dict[str, None] = {}
        """Ids that nobody has waited for to the end, in their order."""
        self._kept: dict[str, Output] = {}

    def finished(self, ids: Iterable[str]) -> Iterator[Output]:
        """The last output of each of `ids`, as they end; those of enqueued requests that end meanwhile are kept.

        Raises:
            EngineDeadError: the engine process died; enqueued requests are lost with it.
        """
        missing = dict.fromkeys(ids)
        waited_for = list(missing)
        try:
            ready = [self._kept[request_id] for request_id in waited_for if request_id in self._kept]
            while missing:
                for output in ready:
                    del missing[output.request_id]
                yield from ready
                ready = self._step(missing) if missing else []
        finally:
            # Of a wait that was interrupted, the next one brings everything again.
            for request_id in waited_for:
                if not missing or request_id not in self.enqueued:
                    self._kept.pop(request_id, None)

    def _step(self, missing: Container[str]) -> list[Output]:
        """One step of the engine; what it ended of `missing`."""
        try:
            outputs = [output for output in self._engine.step() if output.finished]
        except EngineDeadError:
            self.enqueued.clear()
            self._kept.clear()
            raise
        self._kept.update({one.request_id: one for one in outputs if one.request_id in self.enqueued})
        return [output for output in outputs if output.request_id in missing]
