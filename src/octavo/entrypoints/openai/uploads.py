"""Request bodies that are still on their way: nobody waits for them for ever, and a server that ends not at all."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from octavo.lib.errors import DrainingError, InvalidRequestError, OctavoError

IDLE_SECONDS = 60.0


class Uploads:
    """The bodies that one server is receiving.

    Args:
        idle_seconds: Longest pause between two parts of a body.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._deadlines: set[asyncio.Timeout] = set()
        self._ended = False

    async def next(self, receive: Receive) -> Message:
        """The next part of a body.

        Raises:
            InvalidRequestError: with status 408; the client paused for too long.
            DrainingError: the server shuts down.
        """
        try:
            async with asyncio.timeout(0.0 if self._ended else self._idle_seconds) as deadline:
                self._deadlines.add(deadline)
                try:
                    return await receive()
                finally:
                    self._deadlines.discard(deadline)
        except TimeoutError:
            raise self._refusal() from None

    def end(self) -> None:
        """Take no more parts than have arrived already. Call in the event loop."""
        self._ended = True
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    def _refusal(self) -> OctavoError:
        if self._ended:
            return DrainingError("The server is shutting down and takes no new requests.")
        error = InvalidRequestError(
            f"The request body stopped for more than {self._idle_seconds:.0f} s before its end.", param="body"
        )
        error.status = 408
        return error
