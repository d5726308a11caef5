"""An event loop whose clock jumps to the next timer: minutes of waiting pass at once, and times are exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector = self._selector  # type: ignore[attr-defined]
        poll = selector.select

        def select(timeout: float | None) -> Any:
            if timeout is None:
                raise AssertionError("everybody waits, and for no timer")
            self._now += timeout
            return poll(0)

        selector.select = select

    def time(self) -> float:
        return self._now


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """`asyncio.run` in virtual time; the loop's `time` is the clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
