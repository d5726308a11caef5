"""The front's side of one conversation with one engine process, without any I/O: a sync and an async client share it."""

from __future__ import annotations

import enum
import logging
import time

from octavo.config import OctavoConfig
from octavo.engine.clients.wire import (
    Configure,
    Fatal,
    FromEngine,
    Hello,
    Progress,
    Ready,
    Step,
)
from octavo.lib.errors import EngineDeadError, OctavoError, error_from_wire
from octavo.types.engine import EngineOutputs

logger = logging.getLogger(__name__)


class EngineState(enum.Enum):
    """Where an engine process stands."""

    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"


class EngineSession:
    """State of one engine process as its frames tell it.

    Args:
        clock: Monotonic seconds; a test's own clock otherwise.
    """

    def __init__(self) -> None:
        self.state = EngineState.STARTING
        self.ready: Ready | None = None
        self.fatal: Fatal | None = None
        self.stage = "starting the process"
        self.waits_for_config = False
        self.last_sign = time.monotonic()

    def receive(self, message: FromEngine) -> EngineOutputs | None:
        """Take one frame in; the outputs if it was a step."""
        self.last_sign = time.monotonic()
        match message:
            case Step():
                return message.outputs
            case Hello():
                self.waits_for_config = True
            case Progress():
                self.stage = message.stage
            case Ready():
                self.state, self.ready = EngineState.READY, message
            case Fatal():
                self.fatal = message
            case _:
                pass
        return None

    def configure(self, config: OctavoConfig) -> Configure | None:
        """The answer to `Hello`, once there is a configuration."""
        if not self.waits_for_config:
            return None
        self.waits_for_config = False
        return Configure(config)

    def end(self, exit_cause: str) -> OctavoError:
        """The process is gone: the error for those who waited for it, with its own last words if there were any."""
        was_ready = self.state is EngineState.READY
        self.state = EngineState.DEAD
        if self.fatal is None:
            return EngineDeadError(f"The engine process died: {exit_cause}.")
        if was_ready:
            return EngineDeadError(f"The engine process died: {self.fatal.message}")
        return error_from_wire(self.fatal.error_type, self.fatal.message)

    def silent_seconds(self) -> float:
        """Seconds since its last frame."""
        return time.monotonic() - self.last_sign
