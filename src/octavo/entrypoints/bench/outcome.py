"""What was seen of one request."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec


@dataclass(slots=True)
class Outcome:
    """Times are seconds of one clock."""

    started: float
    prompt_len: int = 0
    output_len: int = 0
    """Tokens as the server counted them; without its count the pieces that came."""
    piece_times: list[float] = field(default_factory=list)
    """When each piece of the answer came."""
    text: str = ""
    error: str = ""
    """Why it failed; empty if it did not."""

    @property
    def ttft(self) -> float:
        """Seconds to the first piece."""
        return self.piece_times[0] - self.started

    @property
    def e2el(self) -> float:
        """Seconds to the last piece."""
        return self.piece_times[-1] - self.started

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first; None when there is only one."""
        return (self.e2el - self.ttft) / (self.output_len - 1) if self.output_len > 1 else None

    @property
    def itls(self) -> list[float]:
        """Seconds between pieces."""
        return [later - earlier for earlier, later in pairwise(self.piece_times)]


class Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(msgspec.Struct):
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    @property
    def piece(self) -> str | None:
        """The text that came with a token; None: no token came (an opening role, a closing reason)."""
        if self.delta is None:
            text, opening = self.text or "", False
        else:
            delta = self.delta
            text = delta.content or delta.reasoning_content or delta.reasoning or ""
            opening = delta.role is not None
        # A token without text is half of a character; what opens or closes an answer has none either.
        return text if text or not (opening or self.finish_reason) else None


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Failure(msgspec.Struct):
    message: str = ""


class Event(msgspec.Struct):
    """The part of a chunk that is measured, of completions and of chat."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Failure | None = None


class Recorder:
    """Fills an outcome from the events of a stream."""

    _decode = msgspec.json.Decoder(Event).decode

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._texts: list[str] = []
        self._usage: Usage | None = None

    def event(self, data: bytes, now: float) -> None:
        """One event's data, and when it came."""
        if data == b"[DONE]":
            return
        try:
            event = self._decode(data)
        except msgspec.DecodeError as error:
            self.outcome.error = self.outcome.error or f"an event cannot be read: {error}"
            return
        if event.error is not None:
            self.outcome.error = event.error.message or "an error without a message"
        self._usage = event.usage or self._usage
        for choice in event.choices:
            if (piece := choice.piece) is not None:
                self.outcome.piece_times.append(now)
                self._texts.append(piece)

    def close(self) -> Outcome:
        """The stream is over."""
        outcome = self.outcome
        outcome.text = "".join(self._texts)
        outcome.output_len = len(outcome.piece_times)
        if self._usage is not None:
            outcome.prompt_len = self._usage.prompt_tokens or outcome.prompt_len
            outcome.output_len = self._usage.completion_tokens
        if not outcome.piece_times and not outcome.error:
            outcome.error = "the answer has no token"
        return outcome
