"""`EngineClient` for a core in its own process, for callers without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import zmq

from octavo.config import OctavoConfig
from octavo.config.env import environment
from octavo.engine.clients.process import COMMAND, EngineProcess, SocketFolder
from octavo.engine.clients.session import EngineSession, EngineState
from octavo.engine.clients.wire import (
    Abort,
    Add,
    Call,
    FromEngine,
    Progress,
    Reply,
    ResetPrefixCache,
    Shutdown,
    Sleep,
    ToEngine,
    WakeUp,
    decode_from_engine,
    encode,
    result_of,
)
from octavo.engine.loading_bar import ProgressListener, silent
from octavo.lib.errors import EngineDeadError
from octavo.types.engine import EngineOutputs, EngineRequest

_POLL_MS = 100


class SyncZmqClient:
    """Starts an engine process and talks to it. A dead engine is not started again: its caller is a script.

    Args:
        command: How to start the process.
        progress: Told what the process does while it loads.
    """

    def __init__(self, command: Sequence[str] = COMMAND, progress: ProgressListener = silent) -> None:
        self._progress = progress
        self._context = zmq.Context()
        self._folder = SocketFolder()
        address = self._folder.next_address()
        self._socket = bind_pair(self._context, address)
        self._session = EngineSession()
        self._process = EngineProcess(address, command, lambda process: None)
        self._replies: dict[int, Reply] = {}
        self._outputs: list[EngineOutputs] = []
        self._calls = 0
        self._closed = False

    def start(self, config: OctavoConfig) -> None:
        """Configure the engine and wait until it is ready.

        Raises:
            EngineDeadError: it died or made no progress for `OCTAVO_ENGINE_READY_TIMEOUT_S`.
            OctavoError: whatever it refused, as the engine itself raised it.
        """
        limit = environment().engine_ready_timeout_s
        while self._session.state is not EngineState.READY:
            self._receive()
            answer = self._session.configure(config)
            if answer is not None:
                self._send(answer)
            if self._session.silent_seconds() > limit:
                self._process.kill()
                raise EngineDeadError(
                    f"The engine made no progress for {limit:.0f} s while {self._session.stage}."
                )

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """See `EngineClient.add`."""
        self._send(Add(list(requests)))

    def abort(self, request_ids: Sequence[str]) -> None:
        """See `EngineClient.abort`."""
        if self._closed:
            return
        self._send(Abort(list(request_ids)))

    def get_outputs(self) -> EngineOutputs:
        """See `EngineClient.get_outputs`."""
        while not self._outputs:
            self._receive()
        return self._outputs.pop(0)

    def reset_prefix_cache(self) -> bool:
        """See `EngineClient.reset_prefix_cache`."""
        return self._call(ResetPrefixCache)

    def sleep(self, level: int) -> None:
        """See `EngineClient.sleep`."""
        self._call(partial(Sleep, level=level))

    def wake_up(self, tags: Sequence[str]) -> None:
        """See `EngineClient.wake_up`."""
        self._call(partial(WakeUp, tags=list(tags)))

    def _call(self, call: Callable[[int], Call]) -> bool:
        """Send a call and wait for its result, or raise its error."""
        self._calls += 1
        number = self._calls
        self._send(call(number))
        while number not in self._replies:
            self._receive()
        return result_of(self._replies.pop(number))

    def shutdown(self) -> None:
        """See `EngineClient.shutdown`."""
        if self._closed:
            return
        if self._session.state is EngineState.READY and self._process.alive:
            self._send(Shutdown())
            self._closed = True
            self._process.stop()
        else:
            self._closed = True
            self._process.kill()
        self._socket.close(linger=0)
        self._context.term()
        self._folder.remove()

    def _send(self, message: ToEngine) -> None:
        if self._closed:
            raise EngineDeadError("The engine was shut down.")
        self._socket.send(encode(message))

    def _receive(self) -> None:
        """Take in what arrives within a moment; notices a dead process."""
        alive = self._process.alive  # asked first: what a process sent before it died is still read
        if not self._socket.poll(_POLL_MS):
            if not alive:
                raise self._session.end(self._process.cause_of_death())
            return
        self._take(decode_from_engine(self._socket.recv()))

    def _take(self, message: FromEngine) -> None:
        if isinstance(message, Reply):
            self._replies[message.call_id] = message
        elif isinstance(message, Progress):
            self._progress(message.stage, message.done, message.total)
        outputs = self._session.receive(message)
        if outputs is not None:
            self._outputs.append(outputs)


def bind_pair(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    """The front's end: unbounded, as the scheduler's queue is what bounds requests."""
    socket = context.socket(zmq.PAIR)
    for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
        socket.setsockopt(option, 0)
    socket.bind(address)
    return socket
