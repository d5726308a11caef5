from __future__ import annotations

import pytest
from tests.unit.scheduling.driver import request

from octavo.lib.errors import ConfigError, OverloadedError
from octavo.scheduling.policy import get_policy
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request import Request


def _entry(sequence: int, priority: int = 0) -> Request:
    source = request(f"r{sequence}", [1], priority=priority)
    return Request(source, sequence=sequence, max_total_tokens=9, now=0.0)


def _names(queue: WaitingQueue) -> list[str]:
    return [entry.request_id for entry in queue]


def test_first_come_first_served_and_the_preempted_comes_back_ahead() -> None:
    queue = WaitingQueue(get_policy("fcfs"), 10)
    entries = [_entry(0, priority=5), _entry(1), _entry(2)]
    for entry in entries:
        queue.add(entry)
    queue.take(entries[0], 0.0)
    queue.take(entries[1], 0.0)
    queue.add(entries[1])
    assert _names(queue) == ["r1", "r2"]


def test_lower_priority_value_first_then_arrival() -> None:
    queue = WaitingQueue(get_policy("priority"), 10)
    for entry in (_entry(0, 1), _entry(1, 0), _entry(2, 1), _entry(3, -2)):
        queue.add(entry)
    assert _names(queue) == ["r3", "r1", "r0", "r2"]


def test_a_full_queue_tells_when_to_come_back() -> None:
    queue = WaitingQueue(get_policy("fcfs"), 40)
    entries = [_entry(number) for number in range(60)]
    for number, entry in enumerate(entries):
        queue.add(entry)
        if number >= 20:
            queue.take(entries[number - 20], now=3.0 * number)
    for number in range(60, 80):
        queue.add(_entry(number))
    with pytest.raises(OverloadedError, match="limit 40") as caught:
        queue.check_room()
    assert 30 < caught.value.retry_after <= 60  # 20 departures at about 3 s each, less what smoothing lags


def test_prompt_tokens_that_wait_are_bounded_too() -> None:
    queue = WaitingQueue(get_policy("fcfs"), 40, token_limit=3)
    entries = [_entry(number) for number in range(3)]
    for entry in entries:
        queue.check_room()
        queue.add(entry)
    with pytest.raises(OverloadedError, match="3 prompt tokens"):
        queue.check_room()
    queue.take(entries[0], 0.0)
    queue.check_room()


def test_unknown_policy_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="lottery"):
        get_policy("lottery")
