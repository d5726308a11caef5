"""Only requests for this server's own names: a page that rebinds its name to our address is refused."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.entrypoints.openai.errors import error_response
from octavo.lib.errors import InvalidRequestError


class AllowedHosts:
    """Answers 400 to a Host header that is none of `hosts` (`example.com`, or `*.example.com` for names below it)."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._names = {host.lower() for host in hosts if not host.startswith("*.")}
        self._endings = tuple(host[1:].lower() for host in hosts if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_ours(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        error = InvalidRequestError(
            "The Host header is none that this server answers (--allowed-hosts).", param="host"
        )
        await error_response(error)(scope, receive, send)

    def _is_ours(self, given: str) -> bool:
        # `[::1]:8000` keeps its brackets' content, `name:8000` loses the port.
        host = given.lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return name in self._names or bool(self._endings and name.endswith(self._endings))
