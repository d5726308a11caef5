"""A grammar is first tried in a process of its own, which may take too long, grow too large or crash.

What passes there is compiled a second time where it is used. Started at the first grammar, as
`python -m octavo.structured_output.trial_main`; it lives as long as its standard input is open.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

from octavo.structured_output.backend import GrammarError, UnsupportedGrammarError


def is_unsupported(answer: str) -> bool:
    """Whether a refusal says that something is too much or unknown, not that it is wrong."""
    return any(words in answer for words in ("not supported", "too complex", "takes more than"))


class GrammarTrial:
    """Tries grammars one after the other; may be called from several threads.

    Args:
        seconds: A grammar that takes longer is refused.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def check(self, grammar: str) -> None:
        """Try a grammar.

        Raises:
            GrammarError: it is wrong, or too much.
        """
        with self._lock:
            answer = self._ask(grammar)
        if answer:
            raise (UnsupportedGrammarError if is_unsupported(answer) else GrammarError)(answer)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _ask(self, grammar: str) -> str:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(grammar).encode() + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], self._seconds)[0]:
                self._stop()
                return f"the grammar cannot be held to: it takes more than {self._seconds:g} s to compile"
            line = process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            self._stop()
            return "the grammar cannot be held to: it is too complex to compile"
        return str(json.loads(line))

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "octavo.structured_output.trial_main"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._end = weakref.finalize(self, _end, self._process)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it has started: its imports are no part of a grammar's time
        return self._process

    def _stop(self) -> None:
        self._process = None
        self._end()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not written any more
                pipe.close()
