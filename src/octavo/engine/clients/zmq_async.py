"""The async client of an engine process: reads its frames, notices its death within a moment, starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import zmq
import zmq.asyncio

from octavo.config import OctavoConfig
from octavo.config.env import Environment, environment
from octavo.engine.clients.process import COMMAND, EngineProcess, SocketFolder
from octavo.engine.clients.restarts import RestartBudget
from octavo.engine.clients.session import EngineSession, EngineState
from octavo.engine.clients.wire import (
    Abort,
    Add,
    Call,
    Progress,
    Ready,
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
from octavo.engine.clients.zmq_sync import bind_pair
from octavo.engine.loading_bar import ProgressListener, silent
from octavo.lib.errors import EngineDeadError, OctavoError
from octavo.types.engine import EngineOutputs, EngineRequest

logger = logging.getLogger(__name__)

# Frames that a process sent just before its end may arrive a moment after the news of the end.
_LAST_WORDS_SECONDS = 0.1
_READY_CHECK_SECONDS = 1.0


class EngineListener(Protocol):
    """Who is told what comes from the engine. Called in the event loop; must not block."""

    def on_outputs(self, outputs: EngineOutputs) -> None:
        """One step's outputs."""

    def on_death(self, error: OctavoError) -> None:
        """The engine died; nothing more comes for requests sent so far."""


@dataclass
class _Link:
    """One engine process, its socket and what it said."""

    process: EngineProcess
    raw_socket: zmq.Socket[bytes]
    session: EngineSession
    socket: zmq.asyncio.Socket | None = None
    reader: asyncio.Task[None] | None = None


class AsyncZmqClient:
    """Keeps one engine process running. The process starts at once, in the constructor, before there is a configuration.

    Args:
        command: How to start the process.
        env: Limits of waiting and restarting.
        progress: Told what the process does while it loads.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        env: Environment | None = None,
        progress: ProgressListener = silent,
    ) -> None:
        self._command = command
        self._progress = progress
        self._env = env or environment()
        self._restarts = RestartBudget(self._env.engine_max_restarts)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._folder = SocketFolder()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: EngineListener | None = None
        self._config: OctavoConfig | None = None
        self._failure: OctavoError | None = None
        self._was_ready = False
        self._changed = asyncio.Event()
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._link = self._launch()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """Of the process that runs now."""
        return EngineState.DEAD if self._failure else self._link.session.state

    @property
    def ready(self) -> Ready | None:
        """Facts about the loaded model; None before it is ready."""
        return self._link.session.ready

    @property
    def failure(self) -> OctavoError | None:
        """Why there is no engine any more and there will be none; None while there is hope."""
        return self._failure

    @property
    def was_ready(self) -> bool:
        """Whether an engine was ever ready."""
        return self._was_ready

    @property
    def stage(self) -> str:
        """What a starting engine is doing."""
        return self._link.session.stage

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._link.process.pid

    def silent_seconds(self) -> float:
        """Seconds since the engine's last frame."""
        return self._link.session.silent_seconds()

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self, config: OctavoConfig, listener: EngineListener) -> None:
        """Begin to talk to the process. Must be called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._listener = listener
        self._attach(self._link)

    async def wait_ready(self) -> Ready:
        """Wait until requests can be sent.

        Raises:
            OctavoError: what the engine refused, or EngineDeadError when it died or went silent for too long.
        """
        limit = self._env.engine_ready_timeout_s
        while self.state is not EngineState.READY:
            if self._failure:
                raise self._failure
            if self.silent_seconds() > limit:
                error = EngineDeadError(f"The engine made no progress for {limit:.0f} s while {self.stage}.")
                self._fail(error)
                logger.error("%s", error.message)
                self._link.process.kill()
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _READY_CHECK_SECONDS)
            self._changed.clear()
        assert self.ready is not None
        return self.ready

    async def shutdown(self) -> None:
        """Stop the process and everything that belongs to it. May be called twice."""
        if self._closing:
            return
        self._closing = True
        self._fail(EngineDeadError("The engine was shut down."))
        link = self._link
        if link.session.state is EngineState.READY and link.process.alive:
            self._send(Shutdown())
            await asyncio.to_thread(link.process.stop)
        else:
            await asyncio.to_thread(link.process.kill)
        self._detach(link)
        for task in self._tasks:
            task.cancel()
        self._context.term()
        self._folder.remove()

    def discard(self) -> None:
        """End a process that was never talked to; for a start that failed before there was an event loop."""
        self._closing = True
        self._link.process.kill()
        self._detach(self._link)
        self._context.term()
        self._folder.remove()

    # -- requests -----------------------------------------------------------------------------------------------------

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Send requests. Does not wait."""
        self._send(Add(list(requests)))

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests at the next step. Does not wait."""
        if request_ids and self.state is EngineState.READY:
            self._send(Abort(list(request_ids)))

    async def reset_prefix_cache(self) -> bool:
        """Forget cached pages; False while requests hold some."""
        return await self._call(ResetPrefixCache)

    async def sleep(self, level: int) -> None:
        """Free memory; see `EngineCore.sleep`."""
        await self._call(partial(Sleep, level=level))

    async def wake_up(self, tags: Sequence[str]) -> None:
        """Bring it back; see `EngineCore.wake_up`."""
        await self._call(partial(WakeUp, tags=list(tags)))

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _call(self, call: Callable[[int], Call]) -> bool:
        """Send a call and wait for its result, or raise its error."""
        call_id = len(self._calls) + 1
        while call_id in self._calls:
            call_id += 1
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            self._send(call(call_id))
            return result_of(await future)
        finally:
            self._calls.pop(call_id, None)

    def _launch(self) -> _Link:
        address = self._folder.next_address()
        socket = bind_pair(self._context, address)
        return _Link(EngineProcess(address, self._command, self._on_exit), socket, EngineSession())

    def _attach(self, link: _Link) -> None:
        link.socket = zmq.asyncio.Socket.from_socket(link.raw_socket)
        link.reader = asyncio.get_running_loop().create_task(self._read(link), name="engine-reader")
        if not link.process.alive:
            self._spawn(self._after_exit(link))

    def _detach(self, link: _Link) -> None:
        if link.reader is not None:
            link.reader.cancel()
        if link.socket is not None:
            link.socket.close(linger=0)
        link.raw_socket.close(linger=0)

    def _send(self, message: ToEngine) -> None:
        if self.state is EngineState.DEAD and not isinstance(message, Shutdown):
            raise self._failure or EngineDeadError("The engine is down.")
        socket = self._link.socket
        if socket is None:
            raise EngineDeadError("The engine client was not started.")
        # Unbounded queue: this never waits, so the future needs no await and the order is that of the calls.
        socket.send(encode(message))

    async def _read(self, link: _Link) -> None:
        assert link.socket is not None
        while True:
            frame = await link.socket.recv()
            try:
                self._take(link, frame)
            except Exception:
                # A fault in handling one frame must not end the reading for all others.
                logger.exception("A frame of the engine could not be handled.")

    def _take(self, link: _Link, frame: bytes) -> None:
        if self._closing:
            return  # whoever waited for this has been told that nothing more comes
        message = decode_from_engine(frame)
        outputs = link.session.receive(message)
        if outputs is not None and self._listener is not None:
            self._listener.on_outputs(outputs)
        elif isinstance(message, Reply):
            future = self._calls.get(message.call_id)
            if future is not None and not future.done():
                future.set_result(message)
        elif isinstance(message, Progress):
            self._progress(message.stage, message.done, message.total)
        elif isinstance(message, Ready):
            self._was_ready = True
        if self._config is not None and (answer := link.session.configure(self._config)):
            self._send(answer)
        self._changed.set()

    def _on_exit(self, process: EngineProcess) -> None:
        """Called in the thread that waited for the process."""
        if self._loop is None or self._closing or process is not self._link.process:
            return
        link = self._link
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(lambda: self._spawn(self._after_exit(link)))

    async def _after_exit(self, link: _Link) -> None:
        if link.session.state is EngineState.DEAD or self._closing:
            return
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        error = link.session.end(link.process.cause_of_death())
        self._detach(link)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error)
        if self._was_ready and self._restarts.take():
            logger.error("%s Starting it again.", error.message)
            self._link = self._launch()
            self._attach(self._link)
        else:
            self._fail(error)
            logger.error("%s", error.message)
        if self._listener is not None:
            self._listener.on_death(error)
        self._changed.set()

    def _fail(self, error: OctavoError) -> None:
        self._failure = self._failure or error
        self._changed.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
