"""Beam search as a state machine: a front runs one step of every beam, the search says how they go on. No I/O.

Each step asks for the 2 * beam_width most likely tokens after every beam. Candidates that end a sequence are set aside, and the best
beam_width of the others go on. At the end sequences are ranked by their score (see `BeamSearch.score`), as in vLLM and transformers.
The prefix cache makes a step cost little more than a decode step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.config import OctavoConfig
from octavo.engine.input import InputProcessor, Prompt
from octavo.lib.errors import InvalidRequestError
from octavo.types.beam_outputs import BeamSearchSequence
from octavo.types.outputs import CompletionOutput, Logprob
from octavo.types.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizers.base import Tokenizer


class BeamSearch:
    """The search for one prompt.

    Args:
        prompt_token_ids: At least one.
        params: Width, length and how to rank.
        eos_token_ids: End a sequence, unless `params.ignore_eos`.
    """

    def __init__(
        self, prompt_token_ids: Sequence[int], params: BeamSearchParams, eos_token_ids: Sequence[int]
    ) -> None:
        self.prompt_token_ids = list(prompt_token_ids)
        self.step_params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            logprobs=2 * params.beam_width,
            ignore_eos=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        """Of the request for one token after each live beam."""
        self.live = [BeamSearchSequence(list(prompt_token_ids))]
        """Beams that go on, best first."""
        self._params = params
        self._eos = frozenset() if params.ignore_eos else frozenset(eos_token_ids)
        self._ends = self._eos | frozenset(params.stop_token_ids)
        self._completed: list[BeamSearchSequence] = []
        self._steps = 0

    @property
    def finished(self) -> bool:
        """Whether no further step can change the outcome."""
        return not self.live or self._steps >= self._params.max_tokens or self._is_settled()

    def advance(self, steps: Sequence[CompletionOutput]) -> None:
        """Take in what came of `step_params` after each live beam, in their order."""
        self._steps += 1
        going_on: list[BeamSearchSequence] = []
        for beam, step in zip(self.live, steps, strict=True):
            assert step.logprobs is not None
            position = step.logprobs[0]
            for token in position:
                (self._completed if token in self._ends else going_on).append(
                    self._extended(beam, token, {token: position[token], **position})
                )
        going_on.sort(key=lambda beam: beam.cum_logprob, reverse=True)
        self.live = going_on[: self._params.beam_width]
        self._completed = self._best(self._completed)

    def best(self) -> list[BeamSearchSequence]:
        """The best sequences so far, best first."""
        return self._best([*self._completed, *self.live])

    def score(self, sequence: BeamSearchSequence) -> float:
        """Log probability over the length to the power of `length_penalty`; a closing EOS does not count to the length."""
        length = len(sequence.tokens) - (sequence.tokens[-1] in self._eos)
        return self._scored(sequence.cum_logprob, length)

    def _scored(self, logprob: float, length: int) -> float:
        divisor: float = float(max(1, length)) ** self._params.length_penalty
        return logprob / divisor

    def _best(self, sequences: list[BeamSearchSequence]) -> list[BeamSearchSequence]:
        return sorted(sequences, key=self.score, reverse=True)[: self._params.beam_width]

    def _is_settled(self) -> bool:
        """Whether no live beam can still come before a completed one: a log probability only falls from here."""
        if len(self._completed) < self._params.beam_width:
            return False
        worst = self.score(self._completed[-1])
        longest = len(self.prompt_token_ids) + self._params.max_tokens
        return all(
            self._scored(beam.cum_logprob, length) < worst
            for beam in self.live[:1]
            for length in (len(beam.tokens) - 1, longest)
        )

    def _extended(
        self, beam: BeamSearchSequence, token: int, position: dict[int, Logprob]
    ) -> BeamSearchSequence:
        ends = token in self._ends
        keeps = not ends or self._params.include_stop_str_in_output
        return BeamSearchSequence(
            [*beam.tokens, token] if keeps else beam.tokens,
            [*beam.logprobs, position] if keeps else beam.logprobs,
            beam.cum_logprob + position[token].logprob,
            finish_reason="stop" if ends else "length",
            stop_reason=token if ends and token not in self._eos else None,
        )


def open_beam_search(
    config: OctavoConfig,
    tokenizer: Tokenizer | None,
    prompt: Prompt,
    params: BeamSearchParams,
    *,
    width_name: str = "beam_width",
) -> BeamSearch:
    """Check a request for a search and begin it.

    Args:
        width_name: What the caller calls `beam_width`.

    Raises:
        InvalidRequestError: names the field and the limit.
    """
    model = config.model
    most = (model.vocab_size if model.max_logprobs == -1 else min(model.max_logprobs, model.vocab_size)) // 2
    if params.beam_width > most:
        raise InvalidRequestError(
            f"{width_name} is {params.beam_width}, but at most {most} beams can be followed: half of --max-logprobs.",
            param=width_name,
        )
    if model.logprobs_mode.endswith("logits"):
        raise InvalidRequestError(
            "Beam search ranks by log probabilities, but this engine reports logits (--logprobs-mode).",
            param="use_beam_search",
        )
    whole = SamplingParams(
        n=params.beam_width, max_tokens=params.max_tokens, stop_token_ids=params.stop_token_ids
    )
    door = InputProcessor(model, tokenizer, max_queued=config.scheduler.max_num_queued_reqs)
    request = door.process("beams", prompt, whole)
    if request.prompt_embeds:
        raise InvalidRequestError("prompt_embeds have no token ids, which beam search needs.", param="prompt")
    return BeamSearch(request.prompt_token_ids, params, model.eos_token_ids)
