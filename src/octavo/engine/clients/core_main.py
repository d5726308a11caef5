"""The engine process: connects to its front, loads, and then runs `EngineCore.step()` as long as there is work.

Started as `python -m octavo.engine.clients.core_main ADDRESS` by `process.EngineProcess`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from octavo.config import OctavoConfig
from octavo.config.logging import configure_logging
from octavo.engine.clients.process import folder_of, remove_folder
from octavo.engine.clients.wire import (
    Abort,
    Add,
    Call,
    Configure,
    Fatal,
    FromEngine,
    Hello,
    Progress,
    Ready,
    Reply,
    ResetPrefixCache,
    Shutdown,
    Sleep,
    Step,
    ToEngine,
    WakeUp,
    decode_to_engine,
    encode,
)
from octavo.engine.core import EngineCore
from octavo.lib.errors import OctavoError

if TYPE_CHECKING:
    from octavo.executor.base import Executor

logger = logging.getLogger("octavo.engine.clients.core_main")  # this file runs as __main__

MakeExecutor = Callable[[OctavoConfig], "Executor"]
_LINGER_MS = 2000


class Channel:
    """The engine's end of the socket."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.connect(address)

    def send(self, message: FromEngine) -> None:
        """Queue one frame; never blocks."""
        self._socket.send(encode(message))

    def report(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell the front what is being done."""
        self.send(Progress(stage, done, total))

    def receive(self, *, block: bool) -> list[ToEngine]:
        """All frames that have arrived; with `block`, waits (without using the processor) for the first one."""
        messages: list[ToEngine] = []
        while self._socket.poll(None if block and not messages else 0):
            messages.append(decode_to_engine(self._socket.recv()))
        return messages

    def close(self) -> None:
        """Hand queued frames over, then close."""
        self._socket.close()
        self._context.term()


class CoreLoop:
    """Frames in, steps, frames out."""

    def __init__(self, core: EngineCore, channel: Channel) -> None:
        self._core = core
        self._channel = channel
        self._running = True

    def run(self) -> None:
        """Serve until the front says `Shutdown`."""
        # What is loaded stays: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        while self._running:
            for message in self._channel.receive(block=not self._core.has_work()):
                self._handle(message)
            if self._running and self._core.has_work():
                self._channel.send(Step(self._core.step()))

    def _handle(self, message: ToEngine) -> None:
        match message:
            case Add():
                self._core.add(message.requests)
            case Abort():
                self._core.abort(message.request_ids)
            case ResetPrefixCache() | Sleep() | WakeUp():
                self._channel.send(self._reply(message))
            case Shutdown():
                self._running = False
            case Configure():
                logger.warning("A second configuration was ignored.")

    def _reply(self, message: Call) -> Reply:
        """Carry out a call. What it raises is the caller's to know and does not end the engine."""
        try:
            return Reply(message.call_id, self._call(message))
        except OctavoError as error:
            return Reply(message.call_id, False, error.error_type, error.message)
        except Exception as error:
            logger.exception("A call of the front failed.")
            return Reply(message.call_id, False, OctavoError.error_type, f"{type(error).__name__}: {error}")

    def _call(self, message: Call) -> bool:
        match message:
            case ResetPrefixCache():
                return self._core.reset_prefix_cache()
            case Sleep():
                self._core.sleep(message.level)
            case WakeUp():
                self._core.wake_up(message.tags)
        return True


def serve(address: str, make_executor: MakeExecutor, prepare: Callable[[], None] = lambda: None) -> int:
    """Run an engine process to its end; returns the exit status.

    Args:
        address: Socket of the front.
        make_executor: Makes the executor from the configuration.
        prepare: Slow imports, done while the front still makes the configuration.
    """
    _watch_parent(address)
    _ignore_front_signals()
    configure_logging("engine")
    channel = Channel(address)
    try:
        _serve(channel, make_executor, prepare)
    except OctavoError as error:
        logger.debug("The engine ends.", exc_info=error)
        channel.send(Fatal(error.error_type, error.message))
        return 1
    except Exception as error:
        logger.exception("The engine ends.")
        channel.send(Fatal(OctavoError.error_type, f"{type(error).__name__}: {error}"))
        return 1
    finally:
        channel.close()
    return 0


def _serve(channel: Channel, make_executor: MakeExecutor, prepare: Callable[[], None]) -> None:
    channel.send(Hello(os.getpid()))
    begin = time.monotonic()
    prepare()
    prepared = time.monotonic()
    config = _await_configuration(channel)
    if config is None:
        return
    core = EngineCore(config, make_executor(config), channel.report)
    channel.send(
        Ready(
            num_blocks=core.num_blocks,
            block_size=core.layout.block_size,
            weight_bytes=core.model.weight_bytes,
            kv_bytes=core.kv_bytes,
            load_seconds=time.monotonic() - begin,
        )
    )
    logger.info(
        "Ready: imports took %.1f s, the model %.1f s.", prepared - begin, time.monotonic() - prepared
    )
    try:
        CoreLoop(core, channel).run()
    finally:
        core.shutdown()


def _await_configuration(channel: Channel) -> OctavoConfig | None:
    """The configuration; None if the front wants no engine any more."""
    while True:
        for message in channel.receive(block=True):
            if isinstance(message, Configure):
                return message.config
            if isinstance(message, Shutdown):
                return None


def _ignore_front_signals() -> None:
    """A terminal's Ctrl-C and a service manager's SIGTERM reach the whole group; the front decides what they mean."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.enable()


def _watch_parent(address: str) -> None:
    """End this process when the front's end of our standard input closes, even in the middle of a step."""
    source = os.dup(0)
    os.set_inheritable(source, False)

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(source, 4096):
                pass
        # Give a polite shutdown, which closes the input too, the time to finish.
        time.sleep(_LINGER_MS / 1000)
        remove_folder(folder_of(address))
        os._exit(1)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


def _uniproc(config: OctavoConfig) -> Executor:
    from octavo.executor.uniproc import UniprocExecutor

    return UniprocExecutor(config)


def _import_executor() -> None:
    import_torch()
    import octavo.executor.uniproc  # noqa: F401


# What `import torch` brings and an engine never uses, a third of its time: kernels for "meta" tensors and the exporter.
_LEFT_OUT = ("torch._meta_registrations", "torch.export")


def import_torch() -> None:
    """Import torch without what only tracing and exporting need.

    Who does trace or export imports `torch._meta_registrations` or `torch.export` itself, which then is the real one.
    """
    sys.modules.update({name: types.ModuleType(name) for name in _LEFT_OUT})
    try:
        import torch  # noqa: F401
    finally:
        for name in _LEFT_OUT:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], _uniproc, _import_executor))
