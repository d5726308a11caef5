"""What of an engine sleeps. The levels and tags are vLLM's; what they free on this machine is in `docs/sleep.md`. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.lib.errors import AsleepError, InvalidRequestError

LEVELS = (1, 2)
MODES = ("abort", "wait")
TAGS = ("weights", "kv_cache")


def check_sleep(level: int, mode: str = "abort") -> None:
    """Refuse what `sleep` does not know.

    Raises:
        InvalidRequestError: names the argument and its choices.
    """
    if level not in LEVELS:
        raise InvalidRequestError(f"level must be 1 or 2, got {level}.", param="level")
    if mode not in MODES:
        raise InvalidRequestError(f"mode must be one of {', '.join(MODES)}, got {mode!r}.", param="mode")


def check_tags(tags: Iterable[str] | None) -> tuple[str, ...]:
    """The tags to wake; None: all.

    Raises:
        InvalidRequestError: one is not known.
    """
    given = TAGS if tags is None else tuple(tags)
    for tag in given:
        if tag not in TAGS:
            raise InvalidRequestError(f"tags must be among {', '.join(TAGS)}, got {tag!r}.", param="tags")
    return given


class SleepState:
    """Which parts sleep, and how deeply. A front and the core behind it each keep one."""

    def __init__(self) -> None:
        self.level = 0
        """0: awake."""
        self.asleep: frozenset[str] = frozenset()

    @property
    def is_sleeping(self) -> bool:
        """Whether anything sleeps; requests are taken only when nothing does."""
        return bool(self.asleep)

    def deepens(self, level: int) -> bool:
        """Whether going to sleep at `level` frees anything that is not free already."""
        return level > self.level or (level == max(LEVELS) and self.asleep != frozenset(TAGS))

    def fall(self, level: int) -> None:
        """All parts sleep now, at least as deeply as before."""
        self.level, self.asleep = max(level, self.level), frozenset(TAGS)

    def rise(self, tags: Iterable[str] = TAGS) -> None:
        """These parts are awake."""
        self.asleep -= frozenset(tags)
        if not self.asleep:
            self.level = 0

    def check_awake(self) -> None:
        """Refuse a request that came while the model sleeps.

        Raises:
            AsleepError: with status 503.
        """
        if self.is_sleeping:
            raise AsleepError(
                "The model sleeps and takes no requests; wake it up first (wake_up, POST /wake_up)."
            )
