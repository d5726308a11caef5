"""One worker in the engine's own process."""

from __future__ import annotations

from concurrent.futures import Future

from octavo.config.octavo_config import OctavoConfig
from octavo.models.loading import Progress
from octavo.structured_output.backend import NewMatcher
from octavo.types.kv import KVLayout
from octavo.types.step import StepOutput, StepPlan
from octavo.types.structured_outputs import StructuredOutputsParams
from octavo.worker.worker import LoadedModel, Worker


class UniprocExecutor:
    """Executor with a single worker, called directly."""

    def __init__(self, config: OctavoConfig) -> None:
        self._worker = Worker(
            config.model, config.load, config.device, config.scheduler, config.structured_outputs
        )

    def load(self, progress: Progress | None = None) -> LoadedModel:
        """See `Executor.load`."""
        return self._worker.load(progress)

    def allocate_kv(self, layout: KVLayout, num_blocks: int) -> None:
        """See `Executor.allocate_kv`."""
        self._worker.allocate_kv(layout, num_blocks)

    def execute_model(self, plan: StepPlan) -> StepOutput:
        """See `Executor.execute_model`."""
        return self._worker.execute_model(plan)

    def discard_kv(self) -> None:
        """See `Executor.discard_kv`."""
        self._worker.discard_kv()

    def prepare_grammar(self, params: StructuredOutputsParams) -> Future[NewMatcher]:
        """See `Executor.prepare_grammar`."""
        return self._worker.prepare_grammar(params)

    def shutdown(self) -> None:
        """See `Executor.shutdown`."""
        self._worker.release()
