"""Requests whose grammars are being compiled: they reach the scheduler once it is done, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from octavo.types.engine import EngineRequest
from octavo.types.structured_outputs import StructuredOutputsParams

Prepare = Callable[[StructuredOutputsParams], Future[Any]]
# An engine with nothing else to do looks this often at what has arrived.
_WAIT_SECONDS = 0.005


class GrammarGate:
    """Holds requests back until their grammars are there.

    Args:
        prepare: Begins to compile a grammar.
    """

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._waiting: dict[str, tuple[EngineRequest, Future[Any]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def passes(self, request: EngineRequest) -> bool:
        """Whether a request may run at once; otherwise it is kept.

        Raises:
            OctavoError: its grammar is known to be wrong, or too many wait.
        """
        params = request.sampling.structured_outputs
        if params is None:
            return True
        future = self._prepare(params)
        if future.done():
            future.result()
            return True
        self._waiting[request.request_id] = request, future
        return False

    def take(self) -> list[tuple[EngineRequest, BaseException | None]]:
        """Requests whose grammars are done, with what went wrong."""
        done = [(request, future) for request, future in self._waiting.values() if future.done()]
        for request, _ in done:
            del self._waiting[request.request_id]
        return [(request, future.exception()) for request, future in done]

    def drop(self, request_ids: Iterable[str]) -> list[str]:
        """Forget requests; which of them were here."""
        return [request_id for request_id in request_ids if self._waiting.pop(request_id, None) is not None]

    def wait(self) -> None:
        """Give the compilers a moment."""
        wait([future for _, future in self._waiting.values()], _WAIT_SECONDS, FIRST_COMPLETED)
