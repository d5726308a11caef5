"""One field, several names: what the engine or chat completions call it, and what a face calls it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from octavo.lib.errors import OctavoError

# What the engine calls a field that has another name in request bodies.
ENGINE_NAMES = {"extra_args": "vllm_xargs"}


@contextlib.contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors name fields as this face calls them.

    Args:
        names: From the name in the error to ours.
    """
    try:
        yield
    except OctavoError as error:
        field = re.split(r"[.\[]", error.param or "", maxsplit=1)[0]
        if field in names:
            error.param = names[field]
            error.message = re.sub(rf"\b{re.escape(field)}\b", names[field], error.message)
        raise
