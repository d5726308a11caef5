"""The only reader of the process environment: typed, prefixed `OCTAVO_`, read once; a bad value is an error."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from octavo.lib.errors import ConfigError

PREFIX = "OCTAVO_"
# Names that tests and build scripts use; the engine does not read them, so they are no spelling mistakes either.
_FOREIGN = (f"{PREFIX}TEST_", f"{PREFIX}BUILD_")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
_BINDINGS = ("auto", "nobind")  # the words of VLLM_CPU_OMP_THREADS_BIND
_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR"})


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Each field `name` is the variable `OCTAVO_NAME`."""

    api_key: str = ""
    """Key that the server asks of its clients when `--api-key` is not given."""
    cache_root: Path = Path()
    """Folder for downloads and other things that may be deleted. Default: `$XDG_CACHE_HOME/octavo`."""
    logging_level: str = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""
    log_color: bool = True
    """Colour log lines when they go to a terminal (`NO_COLOR` turns it off too)."""
    log_stats_interval_s: float = 10.0
    """Seconds between the periodic log lines of throughput; 0: none."""
    isa: str = ""
    """Force a lower instruction set: `scalar`, `avx2`, ..."""
    num_threads: int = 0
    """Threads to compute with; 0: one for each physical core that the affinity mask and the cgroup allow."""
    cpu_bind: str = "auto"
    """`auto`: each thread stays on a core of its own where there are as many threads as cores; `nobind`: never."""
    engine_ready_timeout_s: float = 600.0
    """Seconds without any sign of progress after which a starting engine process is given up."""
    engine_max_restarts: int = 3
    """How often in ten minutes the front restarts a dead engine process before it gives up."""
    health_stall_s: float = 120.0
    """Seconds without a step, while requests run, after which the engine counts as unhealthy."""

    unknown: tuple[str, ...] = ()
    """`OCTAVO_*` names that are set but mean nothing."""


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("use 1 or 0")
    return lowered in _TRUE


def _level(value: str) -> str:
    if value.upper() not in _LEVELS:
        raise ValueError(f"use one of {', '.join(sorted(_LEVELS))}")
    return value.upper()


def _binding(value: str) -> str:
    if value.lower() not in _BINDINGS:
        raise ValueError(f"use one of {', '.join(_BINDINGS)}")
    return value.lower()


def _count(value: str) -> int:
    number = int(value)
    if number < 0:
        raise ValueError("must not be negative")
    return number


def _seconds(value: str) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError("must be a number of seconds, 0 or more")
    return number


_PARSERS: dict[str, Callable[[str], object]] = {
    "api_key": _text,
    "cache_root": Path,
    "logging_level": _level,
    "log_color": _flag,
    "log_stats_interval_s": _seconds,
    "isa": _text,
    "num_threads": _count,
    "cpu_bind": _binding,
    "engine_ready_timeout_s": _seconds,
    "engine_max_restarts": _count,
    "health_stall_s": _seconds,
}


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Parse a mapping such as `os.environ`.

    Raises:
        ConfigError: a variable's value is not of its type; names the variable.
    """
    known = {
        PREFIX + field.name.upper(): field.name for field in fields(Environment) if field.name != "unknown"
    }
    values: dict[str, object] = {
        "cache_root": _default_cache_root(environ),
        "log_color": not environ.get("NO_COLOR"),
    }
    for variable, name in known.items():
        if variable in environ:
            values[name] = _parse(variable, environ[variable], _PARSERS[name])
    unknown = sorted(
        v for v in environ if v.startswith(PREFIX) and v not in known and not v.startswith(_FOREIGN)
    )
    return Environment(**values, unknown=tuple(unknown))  # type: ignore[arg-type]


def _parse(variable: str, text: str, parser: Callable[[str], object]) -> object:
    try:
        return parser(text)
    except ValueError as error:
        raise ConfigError(f"{variable}={text!r} cannot be used: {error}.", param=variable) from error


def _default_cache_root(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "octavo"
    try:
        return Path.home() / ".cache" / "octavo"
    except RuntimeError:  # a user without a name, as in many containers, and no HOME
        return Path(tempfile.gettempdir()) / "octavo"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The environment of this process, read at the first call."""
    return read_environment(os.environ)


def set_default(name: str, value: str) -> None:
    """Set `OCTAVO_NAME` for this process and those that it starts, unless the user has set it.

    Args:
        name: A field of `Environment`.
    """
    os.environ.setdefault(PREFIX + name.upper(), value)
    environment.cache_clear()
