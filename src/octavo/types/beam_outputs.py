"""What beam search hands out. Names are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.types.outputs import PositionLogprobs


@dataclass(slots=True)
class BeamSearchSequence:
    """One of the sequences that were followed."""

    tokens: list[int]
    """Of the prompt and the answer."""
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    """Of the answer's tokens; the chosen token comes first."""
    cum_logprob: float = 0.0
    """Of the whole answer, the token that ended it included."""
    text: str | None = None
    """Prompt and answer, once the search is over; None without a tokenizer."""
    finish_reason: str | None = None
    """`stop` or `length`."""
    stop_reason: int | None = None
    """The stop token id that ended it; None for EOS and for length."""


@dataclass(slots=True)
class BeamSearchOutput:
    """The best sequences for one prompt, best first: `beam_width` of them, or all there are."""

    sequences: list[BeamSearchSequence]
