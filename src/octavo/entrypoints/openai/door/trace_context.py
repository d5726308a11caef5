"""W3C trace context (https://www.w3.org/TR/trace-context/): `traceparent` in and out."""

from __future__ import annotations

import re
import secrets

from octavo.lib.origin import Origin

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_SAMPLED = 1


def origin_of(traceparent: str, request_id: str) -> Origin:
    """The origin of a call: within the client's trace if its header is well formed, else in a trace of its own."""
    origin = Origin(request_id=request_id, trace_id=secrets.token_hex(16), span_id=secrets.token_hex(8))
    found = _TRACEPARENT.match(traceparent)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return origin
    if set(found[2]) == {"0"} or set(found[3]) == {"0"}:
        return origin
    origin.trace_id, origin.parent_span_id = found[2], found[3]
    origin.sampled = bool(int(found[4], 16) & _SAMPLED)
    return origin


def traceparent_of(origin: Origin) -> str:
    """The header that names this server's span."""
    return f"00-{origin.trace_id}-{origin.span_id}-{'01' if origin.sampled else '00'}"
