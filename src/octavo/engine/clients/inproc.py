"""The core in the caller's own process: no sockets, no copies; a step runs when its outputs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.engine.core import EngineCore
from octavo.lib.errors import EngineDeadError
from octavo.types.engine import EngineOutputs, EngineRequest


class EngineClient(Protocol):
    """What a sync front asks of an engine, wherever it runs."""

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Send requests."""

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests at the next step."""

    def get_outputs(self) -> EngineOutputs:
        """Wait for what the next step brings. Raises: EngineDeadError."""

    def reset_prefix_cache(self) -> bool:
        """Forget cached pages; False while requests hold some."""

    def sleep(self, level: int) -> None:
        """Free memory; see `EngineCore.sleep`."""

    def wake_up(self, tags: Sequence[str]) -> None:
        """Bring it back; see `EngineCore.wake_up`."""

    def shutdown(self) -> None:
        """Stop the engine. May be called twice."""


class InprocClient:
    """`EngineClient` by direct calls."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._closed = False

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """See `EngineClient.add`."""
        if self._closed:
            raise EngineDeadError("The engine was shut down.")
        self.core.add(requests)

    def abort(self, request_ids: Sequence[str]) -> None:
        """See `EngineClient.abort`."""
        self.core.abort(request_ids)

    def get_outputs(self) -> EngineOutputs:
        """Run one step."""
        return self.core.step()

    def reset_prefix_cache(self) -> bool:
        """See `EngineClient.reset_prefix_cache`."""
        return self.core.reset_prefix_cache()

    def sleep(self, level: int) -> None:
        """See `EngineClient.sleep`."""
        self.core.sleep(level)

    def wake_up(self, tags: Sequence[str]) -> None:
        """See `EngineClient.wake_up`."""
        self.core.wake_up(tags)

    def shutdown(self) -> None:
        """See `EngineClient.shutdown`."""
        self._closed = True
        self.core.shutdown()
