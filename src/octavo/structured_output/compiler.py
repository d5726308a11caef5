"""Compiled grammars: made in threads, bounded in time and number, and kept as long as they are used."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from octavo.lib.errors import InvalidRequestError, OctavoError, OverloadedError
from octavo.structured_output.backend import Backend, GrammarError, Matcher, NewMatcher
from octavo.types.structured_outputs import StructuredOutputsParams

logger = logging.getLogger(__name__)

CACHED_GRAMMARS = 128
CACHED_CHARACTERS = 8 << 20
"""Of the texts of kept grammars: what is compiled grows with them."""
COMPILE_THREADS = 2
MAX_PENDING = 64


class GrammarCompiler:
    """Compiles constraints, each once.

    Args:
        make_backend: Called in a thread before the first compilation: it may read a vocabulary.
    """

    def __init__(self, make_backend: Callable[[], Backend]) -> None:
        self._make_backend = make_backend
        self._backend: Backend | None = None
        self._backend_lock = threading.Lock()
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Future[NewMatcher]] = OrderedDict()
        self._characters = 0
        self._pending = 0
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, params: StructuredOutputsParams) -> Future[NewMatcher]:
        """The compiled constraint, now or later.

        Raises:
            OverloadedError: too many are being compiled.
        """
        key = _key(params)
        with self._lock:
            future = self._kept.get(key)
            if future is not None:
                self._kept.move_to_end(key)
                return future
            if self._pending >= MAX_PENDING:
                raise OverloadedError(
                    "the server is busy compiling grammars; try again later", retry_after=1.0
                )
            self._pending += 1
            self._threads = self._threads or ThreadPoolExecutor(COMPILE_THREADS, "octavo-grammars")
            future = self._kept[key] = self._threads.submit(self._compile, params)
            self._characters += len(key)
            self._evict()
        future.add_done_callback(lambda done: self._done(key, done))
        return future

    def matcher(self, params: StructuredOutputsParams) -> Matcher:
        """A matcher at the beginning of a constraint; waits where it was not submitted before."""
        return self.submit(params).result()()

    def close(self) -> None:
        """Take no more."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _compile(self, params: StructuredOutputsParams) -> NewMatcher:
        with self._backend_lock:
            self._backend = self._backend or self._make_backend()
        begin = time.monotonic()
        try:
            return self._backend.compile(params)
        except OctavoError as error:
            error.param = error.param or f"structured_outputs.{params.kind}"
            raise
        except Exception as error:  # a library's own: this request's fault until shown otherwise
            logger.exception("A grammar of kind %s could not be compiled.", params.kind)
            raise GrammarError(f"the {params.kind} cannot be held to: {type(error).__name__}") from error
        finally:
            logger.debug("A grammar of kind %s took %.3f s.", params.kind, time.monotonic() - begin)

    def _done(self, key: bytes, future: Future[NewMatcher]) -> None:
        """What failed for want of time or memory may do better next time; what is wrong stays so, and is kept."""
        with self._lock:
            self._pending -= 1
            error = None if future.cancelled() else future.exception()
            if error is not None and not isinstance(error, InvalidRequestError):
                self._forget(key)

    def _evict(self) -> None:
        while len(self._kept) > CACHED_GRAMMARS or self._characters > CACHED_CHARACTERS:
            oldest = next((key for key, future in self._kept.items() if future.done()), None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, key: bytes) -> None:
        if self._kept.pop(key, None) is not None:
            self._characters -= len(key)


def _key(params: StructuredOutputsParams) -> bytes:
    return msgspec.json.encode(params)
