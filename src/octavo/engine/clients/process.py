"""An engine process from the outside: how it is started, how its end is noticed, and why it ended."""

from __future__ import annotations

import contextlib
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

COMMAND: tuple[str, ...] = (sys.executable, "-m", "octavo.engine.clients.core_main")
STOP_SECONDS = 5.0
FOLDER_PREFIX = "octavo-"


class EngineProcess:
    """One child process. It lives no longer than its parent: the end of its standard input tells it to go.

    Args:
        address: Socket of the front, given to the command as its last argument.
        command: Program and first arguments.
        on_exit: Called once, from a waiting thread, when the process has ended.
    """

    def __init__(
        self, address: str, command: Sequence[str], on_exit: Callable[[EngineProcess], None]
    ) -> None:
        self._process = subprocess.Popen([*command, address], stdin=subprocess.PIPE)
        self._on_exit = on_exit
        self._waiter = threading.Thread(target=self._wait, name=f"engine-{self.pid}", daemon=True)
        self._waiter.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def cause_of_death(self) -> str:
        """What its exit status says, with a hint where there is one."""
        code = self._process.poll()
        if code is None:
            return "it still runs"
        if code >= 0:
            return f"it exited with status {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = " (the system kills so when memory runs out)" if -code == signal.SIGKILL else ""
        return f"it was killed by {name}{hint}"

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Close its input and wait for its end; kill it after `timeout` seconds."""
        self._close_input()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            logger.warning("Engine process %d did not stop in %.0f s and is killed.", self.pid, timeout)
            self._process.kill()
            self._process.wait()
        self._waiter.join(timeout)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.stop()

    def _wait(self) -> None:
        self._process.wait()
        self._close_input()
        self._on_exit(self)

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


class SocketFolder:
    """A private folder (mode 0700) for unix sockets; each engine process gets a socket of its own."""

    def __init__(self) -> None:
        self._path = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self._count = 0
        self.remove = weakref.finalize(self, remove_folder, self._path)
        """Delete the folder and what is left in it; happens by itself when the program ends."""

    def next_address(self) -> str:
        """An address that was never used: frames of a dead engine can then not be taken for a new one's."""
        self._count += 1
        return f"ipc://{self._path}/engine-{self._count}.sock"


def folder_of(address: str) -> Path:
    """The folder of a socket."""
    return Path(address.removeprefix("ipc://")).parent


def remove_folder(path: Path) -> None:
    """Delete a socket folder; any other one is left alone."""
    if path.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(path, ignore_errors=True)
