"""`octavo doctor`: what this machine and this installation look like, and what to mend."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--bench",
        action="store_true",
        help="instead: the most that the processor and the memory give the kernels",
    )


def run(args: argparse.Namespace) -> int:
    """Print each finding. Exit code 1 if something keeps Octavo from running."""
    import json

    if args.bench:
        return _bench(as_json=args.json)
    findings = {name: _attempt(look) for name, look in LOOKS.items()}
    failed = [name for name, (good, _) in findings.items() if not good]
    if args.json:
        print(
            json.dumps(
                {name: {"ok": good, "value": value} for name, (good, value) in findings.items()}, indent=2
            )
        )
    else:
        for name, (good, value) in findings.items():
            print(f"{'ok  ' if good else 'FAIL'} {name:15}{value}")
    return 1 if failed else 0


def _bench(*, as_json: bool) -> int:
    import json

    from octavo.entrypoints.bench.roof import measure_roof

    if as_json:
        print(json.dumps([figure.to_json() for figure in measure_roof()], indent=2))
        return 0
    for figure in measure_roof():
        print(figure.line(), flush=True)
    return 0


def _attempt(look: Callable[[], str]) -> tuple[bool, str]:
    """A look that fails is a finding, not a crash."""
    try:
        return True, look()
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"


def _octavo() -> str:
    from octavo.version import __version__

    return f"{__version__}, Python {platform.python_version()}, {sys.platform} {platform.machine()}"


def _processor() -> str:
    from octavo.platforms import core_count

    return f"{_processor_name()}, {core_count()} usable cores"


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            return next(line.split(":", 1)[1].strip() for line in stream if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def _memory() -> str:
    from octavo.lib.human_numbers import format_bytes
    from octavo.platforms import memory_available

    return f"{format_bytes(memory_available())} available"


def _kernels() -> str:
    from octavo import ops
    from octavo.config.env import environment

    if environment().isa:
        ops.set_isa(environment().isa)
    return f"{ops.isa()} (this build and processor have: {', '.join(ops.available_isas())})"


def _torch() -> str:
    import torch

    return str(torch.__version__)


def _default_model() -> str:
    from octavo.engine.default_model import default_model_path

    return str(default_model_path())


LOOKS: dict[str, Callable[[], str]] = {
    "octavo": _octavo,
    "processor": _processor,
    "memory": _memory,
    "torch": _torch,
    "kernels": _kernels,
    "default model": _default_model,
}
