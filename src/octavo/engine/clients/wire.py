"""Frames between a front and an engine process. Each is one msgpack map with its kind in `t`; nothing is pickled.

The conversation: the engine connects and says `Hello`; the front answers `Configure`; the engine reports `Progress`
while it loads and says `Ready`; then the front sends `Add`, `Abort` and calls, and the engine one `Step` for each step of
its loop and one `Reply` for each call. `Fatal` is the last word of an engine that gives up.
"""

from __future__ import annotations

import msgspec

from octavo.config import OctavoConfig
from octavo.lib.errors import InvalidRequestError, error_from_wire
from octavo.types.engine import EngineOutputs, EngineRequest


class Configure(msgspec.Struct, tag_field="t", tag="configure"):
    """What to run. Sent once, in answer to `Hello`."""

    config: OctavoConfig


class Add(msgspec.Struct, tag_field="t", tag="add"):
    """Requests to take in."""

    requests: list[EngineRequest]


class Abort(msgspec.Struct, tag_field="t", tag="abort"):
    """Requests whose client is gone, or whose answer ended at a stop string. Unknown ids are ignored."""

    request_ids: list[str]


class ResetPrefixCache(msgspec.Struct, tag_field="t", tag="reset_prefix_cache"):
    """Forget all cached pages; answered by `Reply`."""

    call_id: int


class Sleep(msgspec.Struct, tag_field="t", tag="sleep"):
    """Free memory; answered by `Reply`."""

    call_id: int
    level: int


class WakeUp(msgspec.Struct, tag_field="t", tag="wake_up"):
    """Bring back what `Sleep` freed; answered by `Reply`."""

    call_id: int
    tags: list[str]


class Shutdown(msgspec.Struct, tag_field="t", tag="shutdown"):
    """Stop now; open requests are dropped."""


class Hello(msgspec.Struct, tag_field="t", tag="hello"):
    """An engine process is up and waits for its configuration."""

    pid: int


class Progress(msgspec.Struct, tag_field="t", tag="progress"):
    """A sign of life while loading."""

    stage: str
    done: int = 0
    total: int = 0


class Ready(msgspec.Struct, tag_field="t", tag="ready"):
    """The model is loaded and requests are taken."""

    num_blocks: int
    block_size: int
    weight_bytes: int
    kv_bytes: int
    load_seconds: float


class Step(msgspec.Struct, tag_field="t", tag="step"):
    """What one step brought."""

    outputs: EngineOutputs


class Reply(msgspec.Struct, tag_field="t", tag="reply"):
    """The result of a call, or the class (by its `error_type`) and message of what it raised."""

    call_id: int
    result: bool = True
    error_type: str | None = None
    error: str | None = None


class Fatal(msgspec.Struct, tag_field="t", tag="fatal"):
    """Why the engine ends: an error's class (by its `error_type`) and message."""

    error_type: str
    message: str


Call = ResetPrefixCache | Sleep | WakeUp
ToEngine = Configure | Add | Abort | Call | Shutdown
FromEngine = Hello | Progress | Ready | Step | Reply | Fatal

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: ToEngine | FromEngine) -> bytes:
    """One frame.

    Raises:
        InvalidRequestError: a text holds half a surrogate pair, or a number has more than 64 bits.
    """
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidRequestError(f"A value of the request cannot be sent to the engine: {error}.") from error


def result_of(reply: Reply) -> bool:
    """What a call gave. Raises: OctavoError, of the class that the engine raised."""
    if reply.error is not None:
        raise error_from_wire(reply.error_type, reply.error)
    return reply.result


def decode_to_engine(frame: bytes) -> ToEngine:
    """Read what a front sent. Raises: msgspec.DecodeError."""
    return _to_engine.decode(frame)


def decode_from_engine(frame: bytes) -> FromEngine:
    """Read what an engine sent. Raises: msgspec.DecodeError."""
    return _from_engine.decode(frame)
