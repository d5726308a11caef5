"""Middleware of the operator's own, by import path (`--middleware package.module.name`)."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, cast

from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware

from octavo.lib.errors import ConfigError


def add_custom_middleware(app: FastAPI, path: str) -> None:
    """Put an ASGI class, or an async function of (request, call_next), around the application.

    Raises:
        ConfigError: nothing of that name can be imported, or it is neither.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"--middleware {path!r} cannot be imported: {error}", param="middleware") from error
    if inspect.isclass(found):
        app.add_middleware(cast(Any, found))
    elif inspect.iscoroutinefunction(found):
        app.add_middleware(BaseHTTPMiddleware, dispatch=found)
    else:
        raise ConfigError(
            f"--middleware {path!r} must be an ASGI class or an async function of (request, call_next).",
            param="middleware",
        )
