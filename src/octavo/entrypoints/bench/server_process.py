"""`octavo serve` as a child process: started, waited for, asked once, stopped."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from octavo.lib.errors import OctavoError

COMMAND = (sys.executable, "-m", "octavo.entrypoints.cli.main", "serve")
POLL_SECONDS = 0.01
STOP_SECONDS = 30.0
SHOWN_BYTES = 2000


def free_port() -> int:
    """A port of the loopback address that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class ServerProcess:
    """A server that is ready."""

    port: int
    began: float
    """Of `time.perf_counter`, when the command was started."""
    ready_seconds: float

    def first_token_seconds(self, prompt: str) -> float:
        """From the command to the first event of an answer.

        Raises:
            OctavoError: no event comes.
        """
        body = {"prompt": prompt, "max_tokens": 1, "ignore_eos": True, "temperature": 0, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            line = answer.readline()
            seconds = time.perf_counter() - self.began
            if answer.status != 200:
                raise OctavoError(f"The server refused a request: {(line + answer.read()).decode()[:500]}")
            answer.read()
            return seconds
        finally:
            connection.close()


@contextlib.contextmanager
def running_server(
    flags: Sequence[str], command: Sequence[str] = COMMAND, *, timeout: float = 600.0
) -> Iterator[ServerProcess]:
    """Start a server on a free port of the loopback address, wait until it is ready, stop it afterwards.

    Args:
        flags: Of `octavo serve`, after the command.
        command: What to start.
        timeout: Seconds to wait for it.

    Raises:
        OctavoError: it ended or was not ready in time; holds the end of what it wrote.
    """
    port = free_port()
    words = [*command, *flags, "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            raise OctavoError(f"The server's command cannot be started: {error}") from error
        try:
            _wait_ready(process, port, began + timeout, log)
            yield ServerProcess(port, began, time.perf_counter() - began)
        finally:
            _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], port: int, deadline: float, log: IO[bytes]) -> None:
    while not _is_ready(port):
        if process.poll() is not None:
            raise OctavoError(f"The server ended with status {process.returncode}:\n{_end_of(log)}")
        if time.perf_counter() > deadline:
            raise OctavoError(f"The server was not ready in time:\n{_end_of(log)}")
        time.sleep(POLL_SECONDS)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_of(log: IO[bytes]) -> str:
    log.seek(0, 2)
    log.seek(max(0, log.tell() - SHOWN_BYTES))
    return log.read().decode(errors="replace")
