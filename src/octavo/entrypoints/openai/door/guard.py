"""Who may call, and how often."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.door.keys import KeyRing
from octavo.entrypoints.openai.door.paths import path_of
from octavo.entrypoints.openai.door.rates import RateLimits
from octavo.entrypoints.openai.errors import error_response
from octavo.lib.errors import AuthenticationError, RateLimitError
from octavo.lib.origin import ORIGIN

# Probes carry no key.
OPEN_PATHS = frozenset({"/health", "/ready", "/ping"})
# Neither can the page that asks for the key: its files are the same for everybody. What it calls is guarded.
PAGE, PAGE_FILES = "/", "/web/"


class Guard:
    """Answers 401 to whoever brings none of the keys, 429 to whoever has used up a key's minute.

    Args:
        ring: The keys; None: anyone may call, as the caller `anonymous`.
        rates: Limits a minute, for each caller; None: none.
    """

    def __init__(self, app: ASGIApp, ring: KeyRing | None, rates: RateLimits | None = None) -> None:
        self._app = app
        self._ring = ring
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope):
            await self._app(scope, receive, send)
            return
        if self._ring is not None and not self._recognise(self._ring, scope):
            error = AuthenticationError(
                "Missing or unknown API key; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
            )
            await error_response(error)(scope, receive, send)
        elif self._rates is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
        else:
            await self._within_rates(self._rates, scope, receive, send)

    def _recognise(self, ring: KeyRing, scope: Scope) -> bool:
        key = ring.key_of(Headers(scope=scope))
        origin = ORIGIN.get()
        if key is not None and origin is not None:
            origin.caller, origin.owner = key.label, key.owner
        return key is not None

    async def _within_rates(self, rates: RateLimits, scope: Scope, receive: Receive, send: Send) -> None:
        origin = ORIGIN.get()
        caller = origin.caller if origin else "anonymous"
        try:
            left = rates.enter(caller)
        except RateLimitError as error:
            response = error_response(error)
            response.headers.update(rates.headers(caller))
            await response(scope, receive, send)
            return

        async def send_with_rates(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(left)
            await send(message)

        await self._app(scope, receive, send_with_rates)


def _is_open(scope: Scope) -> bool:
    path = path_of(scope)
    # A browser's preflight has no key either, and is answered before this; OPTIONS of no browser finds no route.
    return path in OPEN_PATHS or scope["method"] == "OPTIONS" or path == PAGE or path.startswith(PAGE_FILES)
