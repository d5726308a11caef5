"""Who asked: what the door knows of a call, for whoever counts or traces what came of it deep inside the engine's front."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Origin:
    """One call from outside. Filled in by the door while the call passes it."""

    request_id: str = ""
    caller: str = "anonymous"
    """Label of the API key; never the key."""
    owner: str = ""
    """Under which name the key's belongings are kept; empty without keys."""
    trace_id: str = ""
    """32 hexadecimal digits (W3C trace context)."""
    parent_span_id: str = ""
    """The client's span; empty if it sent none."""
    span_id: str = ""
    """This server's span of the call."""
    sampled: bool = False
    """Whether the client records its trace."""


# A context variable, so that every task that a call starts belongs to it without handing this through each function.
ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
