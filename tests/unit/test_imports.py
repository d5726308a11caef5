"""What is imported when: the front stays without torch, the command line without almost everything."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRONT = """
import octavo.entrypoints.openai.app, octavo.entrypoints.openai.server, octavo.entrypoints.openai.renderer
import octavo.engine.async_llm, octavo.engine.args, octavo.tokenizers, octavo.metrics
from octavo.engine.args import EngineArgs
EngineArgs().create_engine_config()
"""


def modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded once `code` has run in a fresh interpreter."""
    report = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    answer = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def test_the_front_never_loads_torch() -> None:
    assert not {"torch", "transformers"} & modules_after(FRONT)


@pytest.mark.parametrize("code", ["import octavo", "import octavo.entrypoints.cli.main"])
def test_the_package_and_the_command_load_nothing_heavy(code: str) -> None:
    heavy = {"torch", "numpy", "fastapi", "pydantic", "tokenizers", "jinja2", "httpx", "zmq", "msgspec"}
    assert not heavy & modules_after(code)
