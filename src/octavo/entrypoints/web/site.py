"""Serving the page: a fixed table of files, read once, with the headers that keep a page to its own server."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Scripts, styles and calls from and to this server only; nothing inline, no frames, no forms that post.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# Browsers keep the files and ask whether they changed: an update of the server is never met by yesterday's script.
CACHING = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}


@dataclass(frozen=True)
class Asset:
    """One file, as it goes out."""

    content_type: str
    plain: bytes
    compressed: bytes
    etag: str

    @classmethod
    def read(cls, path: Path) -> Asset:
        plain = path.read_bytes()
        # A fixed time of change, so that equal files are equal bytes.
        compressed = gzip.compress(plain, mtime=0)
        return cls(
            CONTENT_TYPES[path.suffix], plain, compressed, f'"{hashlib.sha256(plain).hexdigest()[:20]}"'
        )


@cache
def assets() -> dict[str, Asset]:
    """All files by name. Read at the first visit, so that they cost a start nothing; names are looked up, never opened."""
    return {path.name: Asset.read(path) for path in sorted(STATIC.iterdir()) if path.suffix in CONTENT_TYPES}


async def index(request: Request) -> Response:
    """The page itself."""
    return _answer(request, assets()["index.html"])


async def asset(name: str, request: Request) -> Response:
    """A script, a style or a picture of the page.

    Raises:
        HTTPException: 404, there is none of that name.
    """
    found = assets().get(name)
    if found is None:
        raise HTTPException(404, "Not Found")
    return _answer(request, found)


def _answer(request: Request, found: Asset) -> Response:
    """The file, compressed where the browser takes that, or 304 where it has it."""
    headers = SECURITY_HEADERS | CACHING | {"ETag": found.etag}
    known = request.headers.get("if-none-match", "")
    if found.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, headers=headers, media_type=found.content_type)
    return Response(found.plain, headers=headers, media_type=found.content_type)
