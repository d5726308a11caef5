"""What a starting engine is doing, told to whoever waits: as a bar on a terminal, or not at all."""

from __future__ import annotations

import sys
from typing import Any, Protocol

# Loads that are done sooner need no bar.
_DELAY_SECONDS = 0.5


class ProgressListener(Protocol):
    """Told what a starting engine is doing."""

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        """`stage` goes on; `done` of `total` bytes are read, where it is reading."""


def silent(stage: str, done: int = 0, total: int = 0) -> None:
    """The listener that does nothing."""
    del stage, done, total


class LoadingBar:
    """A `ProgressListener` that draws a bar of bytes where stderr is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._bar: Any = None

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Draw, and remove the bar when all is read."""
        if not self._shown or not total:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                desc=stage.capitalize(),
                unit="B",
                unit_scale=True,
                leave=False,
                delay=_DELAY_SECONDS,
            )
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._bar.close()
            self._bar = None
