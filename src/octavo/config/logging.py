"""Log set-up: one line per record on stderr, the same in every process; colours only on a terminal."""

from __future__ import annotations

import logging
import sys

from octavo.config.env import Environment, environment

_COLORS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
_RESET = "\x1b[0m"


class LineFormatter(logging.Formatter):
    """`2026-12-01 12:00:00.123 INFO  engine: message`; line breaks in a message are kept, a traceback follows it."""

    default_msec_format = "%s.%03d"

    def __init__(self, process: str, *, color: bool) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {process}: %(message)s")
        self._color = color

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        start = _COLORS.get(record.levelname, "") if self._color else ""
        return f"{start}{line}{_RESET}" if start else line


def ensure_logging(process: str) -> None:
    """`configure_logging`, unless the program has set up logging in its own way."""
    if not logging.getLogger("octavo").hasHandlers():
        configure_logging(process)


def configure_logging(process: str, env: Environment | None = None) -> None:
    """Send the records of `octavo.*` to stderr. `process` names who speaks (`server`, `engine`, ...)."""
    env = env or environment()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(process, color=env.log_color and sys.stderr.isatty()))
    logger = logging.getLogger("octavo")
    logger.handlers[:] = [handler]
    logger.setLevel(env.logging_level)
    logger.propagate = False
    for name in env.unknown:
        logger.warning("Environment variable %s is set, but Octavo knows no such name.", name)
