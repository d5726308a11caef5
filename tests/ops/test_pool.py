"""The thread pool: idle costs nothing, more threads than cores still work, callers take turns, forks start over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from tests.ops.weights import random_rows, random_weight

from octavo import ops
from octavo.lib.errors import ConfigError


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = ops.num_threads()
    yield
    ops.set_num_threads(before)


def test_number_of_threads_is_checked() -> None:
    ops.set_num_threads(3)
    assert ops.num_threads() == 3
    for bad in (0, -1, 257):
        with pytest.raises(ConfigError, match=r"\[1, 256\]"):
            ops.set_num_threads(bad)
    assert ops.num_threads() == 3


def test_idle_workers_use_no_cpu_time() -> None:
    ops.set_num_threads(4)
    weight = random_weight("q8_0", 512, 512).packed
    ops.linear(random_rows(64, 512), [weight])
    time.sleep(0.05)  # the bounded spin ends
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.01


def test_more_threads_than_cores_finish() -> None:
    weight = random_weight("q4_0", 512, 256).packed
    x = random_rows(40, 256)
    expected = ops.linear(x, [weight])
    ops.set_num_threads(2 * (os.cpu_count() or 1) + 3)
    for _ in range(50):
        assert torch.equal(ops.linear(x, [weight]), expected)


def test_python_threads_take_turns() -> None:
    ops.set_num_threads(2)
    weights = [random_weight(fmt, 96, 256, 3).packed for fmt in ("q4_1", "q6_k", "f32")]
    x = random_rows(20, 256)
    expected = ops.linear(x, weights)
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(30):
            if not torch.equal(ops.linear(x, weights), expected):
                wrong.append(index)

    callers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not any(caller.is_alive() for caller in callers)
    assert wrong == []


def test_changing_the_number_of_threads_under_load() -> None:
    weight = random_weight("q8_0", 256, 256).packed
    x = random_rows(16, 256)
    expected = ops.linear(x, [weight])
    for threads in (1, 2, 5, 3, 8, 1, 4) * 3:
        ops.set_num_threads(threads)
        assert torch.equal(ops.linear(x, [weight]), expected)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_over_with_one_thread() -> None:
    ops.set_num_threads(3)
    weight = random_weight("q4_1", 128, 256).packed
    x = random_rows(12, 256)
    expected = ops.linear(x, [weight])
    child = os.fork()
    if child == 0:
        good = ops.num_threads() == 1 and torch.equal(ops.linear(x, [weight]), expected)
        ops.set_num_threads(2)
        os._exit(0 if good and torch.equal(ops.linear(x, [weight]), expected) else 1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")
