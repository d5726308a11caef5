"""Small tools of measurement: medians, processes and what they cost, a server for the length of a block."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import httpx
import psutil


def median_of(runs: int, measure: Callable[[], float]) -> float:
    """The median of `runs` measurements."""
    return statistics.median(measure() for _ in range(runs))


def wall_seconds(command: Sequence[str]) -> float:
    """How long a whole command takes."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def first_output_seconds(command: Sequence[str]) -> float:
    """How long a command takes to its first byte of output."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        seconds = time.perf_counter() - start
        process.stdout.read()
    return seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RunningServer:
    """A server that is ready."""

    process: subprocess.Popen[bytes]
    url: str
    ready_seconds: float

    def family(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def peak_memory_mib(self) -> float:
        """Sum of the highest resident sizes of its processes."""
        return sum(_peak_kib(process.pid) for process in self.family()) / 1024

    def cpu_seconds(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.family())


@contextlib.contextmanager
def server(command: Sequence[str], port: int, health: str) -> Iterator[RunningServer]:
    """Start `command`, wait until `health` answers 200, end it after the block."""
    url = f"http://127.0.0.1:{port}"
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_ready(process, url + health)
        yield RunningServer(process, url, time.perf_counter() - start)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(process: subprocess.Popen[bytes], url: str, timeout: float = 300) -> None:
    deadline = time.perf_counter() + timeout
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=1).status_code == 200:
                return
        time.sleep(0.02)
    raise RuntimeError(f"{url} did not answer within {timeout} s")


def _peak_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("VmHWM"))


def quiet_environment() -> dict[str, str]:
    """The environment without what would steer a peer's threads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "KMP_"))}
