"""A request's path as our routes know it."""

from __future__ import annotations

from starlette.types import Scope


def path_of(scope: Scope) -> str:
    """The path without the prefix of `--root-path`, which the HTTP server puts before what a proxy has stripped."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
