"""How many decode steps to run between two looks at what has arrived."""

from __future__ import annotations

# What an arrival or an abort may wait for decode steps, and what a stream may hold its tokens back, in seconds.
MOMENT = 0.02


class DecodePace:
    """As many steps as fit into a moment, by the time that the last one took.

    Args:
        most: Never more than so many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.steps = 1

    def note(self, seconds: float) -> None:
        """Take in how long a step took."""
        self.steps = max(1, min(self._most, int(MOMENT / seconds) if seconds > 0 else self._most))
