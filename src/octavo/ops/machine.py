"""Threads and instruction set of the native kernels."""

from __future__ import annotations

from octavo.lib.errors import ConfigError
from octavo.ops.dispatch import built_module, native_module
from octavo.platforms import MAX_THREADS, UNBOUND, ThreadPlaces


def native_available() -> bool:
    """Whether ops run as native kernels (built, and not within `reference_mode`)."""
    return native_module() is not None


def set_num_threads(n: int, places: ThreadPlaces = UNBOUND) -> None:
    """Use n threads (the caller is one of them) from the next op on. Results do not depend on it.

    Args:
        n: How many.
        places: Where they run. The calling thread is in its place only while kernels run.

    Raises:
        ConfigError: n is not in [1, 256].
    """
    if not 1 <= n <= MAX_THREADS:
        raise ConfigError(f"num_threads must be in [1, {MAX_THREADS}], got {n}", param="num_threads")
    built_module().set_num_threads(n, places.cpus, places.threads_per_node)


def num_threads() -> int:
    """Threads that the kernels use."""
    return int(built_module().num_threads())


def isa() -> str:
    """Name of the instruction set in use.

    `scalar`, on x86 `avx2`, `avxvnni`, `avx512`, `avx512vnni` or `amx`, on Arm `neon`, `neondot` or `i8mm`.
    """
    return str(built_module().isa())


def available_isas() -> list[str]:
    """What this build has and this machine can run, slowest first."""
    return list(built_module().available_isas())


def set_isa(name: str) -> None:
    """Use another instruction set from the next op on. All give the same bits, but `amx` (docs/architecture.md).

    Raises:
        ConfigError: this machine or build does not have it.
    """
    if not built_module().set_isa(name):
        raise ConfigError(
            f"The instruction set (OCTAVO_ISA) must be one of {', '.join(available_isas())} here, got {name!r}.",
            param="isa",
        )
