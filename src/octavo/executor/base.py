"""The seam between an engine and the processes or devices that compute for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from octavo.models.loading import Progress
from octavo.types.kv import KVLayout
from octavo.types.step import StepOutput, StepPlan
from octavo.types.structured_outputs import StructuredOutputsParams
from octavo.worker.worker import LoadedModel

__all__ = ["Executor", "LoadedModel", "Progress"]


class Executor(Protocol):
    """Owns the workers of one engine. Calls come in the order load, allocate_kv, execute_model..., shutdown.

    After `shutdown` an engine that slept may begin again with `load`.
    """

    def load(self, progress: Progress | None = None) -> LoadedModel:
        """Load the model.

        Args:
            progress: Called with (bytes done, bytes in all) as weights come in.

        Raises:
            OctavoError: what is wrong with the device or the model's files.
        """

    def allocate_kv(self, layout: KVLayout, num_blocks: int) -> None:
        """Reserve pages for `num_blocks` blocks (and the null page), and warm up."""

    def execute_model(self, plan: StepPlan) -> StepOutput:
        """Run one step; one result for each scheduled request."""

    def discard_kv(self) -> None:
        """Give back the memory of all pages, which read as zero then; steps may go on. No request runs."""

    def prepare_grammar(self, params: StructuredOutputsParams) -> Future[Any]:
        """Begin to compile a grammar, unless that was done before: requests with it run without a wait once it is done.

        The future raises GrammarError where answers cannot be held to it.
        """

    def shutdown(self) -> None:
        """Free everything. May be called twice."""
