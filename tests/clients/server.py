"""A real server with the default model, as its own process."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator

MODEL = "SmolLM2-135M-Instruct"
COMMAND = [sys.executable, "-m", "octavo.entrypoints.cli.main"]


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[str]:
    """The address of a server on a free port."""
    command = [*COMMAND, "serve", "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"at (http://\S+)\. Try", line)
            if found:
                yield found.group(1)
                return
        raise AssertionError("the server did not start")
    finally:
        process.terminate()
        process.communicate(timeout=60)
