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
from octavo.platforms import ThreadPlaces


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


def cpus_of_threads() -> list[set[int]]:
    """Where each thread of this process may run."""
    return [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_threads_stay_in_their_places_and_the_caller_is_free() -> None:
    cpu = max(os.sched_getaffinity(0))
    mine = os.sched_getaffinity(0)
    ops.set_num_threads(3, ThreadPlaces(((cpu,),) * 3, (2, 1)))
    weight = random_weight("q8_0", 512, 512).packed
    ops.linear(random_rows(64, 512), [weight])
    assert os.sched_getaffinity(0) == mine
    deadline = time.monotonic() + 10
    while cpus_of_threads().count({cpu}) < 2 and time.monotonic() < deadline and len(mine) > 1:
        time.sleep(0.01)
    if len(mine) > 1:
        assert cpus_of_threads().count({cpu}) == 2
        ops.set_num_threads(3)
        assert {cpu} not in cpus_of_threads()


def test_a_place_that_is_not_there_is_no_error() -> None:
    x, weight = random_rows(9, 256), random_weight("q4_k", 128, 256).packed
    expected = ops.linear(x, [weight])
    ops.set_num_threads(2, ThreadPlaces(((8000,), (9000,)), (1, 1)))
    assert torch.equal(ops.linear(x, [weight]), expected)
    with pytest.raises(ValueError, match="each thread needs a place"):
        ops.set_num_threads(2, ThreadPlaces(((0,),)))


@pytest.mark.parametrize("nodes", [(2, 2), (1, 3), (1, 1, 1, 1), (3,)])
@pytest.mark.parametrize("fmt", ["q4_1", "q6_k", "bf16"])
def test_bits_do_not_depend_on_nodes(fmt: str, nodes: tuple[int, ...]) -> None:
    weights = [random_weight(fmt, rows, 256, seed) for seed, rows in enumerate((176, 43, 300))]
    x = random_rows(70, 256)
    ops.set_num_threads(1)
    expected = ops.linear(x, [weight.packed for weight in weights])
    ops.set_num_threads(4, ThreadPlaces(threads_per_node=nodes))
    again = [random_weight(fmt, rows, 256, seed).packed for seed, rows in enumerate((176, 43, 300))]
    for rows in (1, 3, 70):
        for packed in ([weight.packed for weight in weights], again):
            assert torch.equal(ops.linear(x[:rows], packed), expected[:rows])
