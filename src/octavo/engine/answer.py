"""One of the n answers to a request, as it grows: its tokens, its text, its end."""

from __future__ import annotations

from octavo.engine.detokenizer import make_detokenizer
from octavo.engine.logprobs import LogprobDecoder
from octavo.tokenizers.base import Tokenizer
from octavo.types.engine import EngineOutput, EngineRequest, FinishReason
from octavo.types.outputs import CompletionOutput, FlatLogprobs, SampleLogprobs


class Answer:
    """State of one answer.

    Args:
        index: Its number among the n.
        request: What the engine was asked.
        tokenizer: None: no text.
    """

    def __init__(self, index: int, request: EngineRequest, tokenizer: Tokenizer | None) -> None:
        self.index = index
        self.engine_id = request.request_id
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.last_token_time: float | None = None
        self._stop_ids = frozenset(request.stop_token_ids)
        self._keeps_stop = request.sampling.include_stop_str_in_output
        self._detokenizer = make_detokenizer(request, tokenizer)
        self._wants_logprobs = request.sampling.wants_logprobs
        self._logprob_decoder = LogprobDecoder(tokenizer, request.prompt_token_ids)
        self._logprobs: SampleLogprobs = FlatLogprobs() if request.sampling.flat_logprobs else []
        self._cumulative_logprob = 0.0
        # How much of the answer earlier outputs held.
        self._sent_tokens = self._sent_text = 0
        self._end_sent = False

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self.finish_reason is not None

    @property
    def has_news(self) -> bool:
        """Whether anything came since the last `output()`."""
        return (self.ended and not self._end_sent) or len(self.token_ids) > self._sent_tokens

    def take(self, output: EngineOutput) -> None:
        """Add a step's tokens. A stop string may end the answer here: tokens after the one completing it are dropped."""
        ids = output.new_token_ids
        reason = output.finish_reason
        # The token that stopped the answer belongs to its ids, but its spelling not to its text.
        stopped = reason is FinishReason.STOP and bool(ids) and ids[-1] in self._stop_ids
        spelled = ids[:-1] if stopped and not self._keeps_stop else ids
        taken = self._detokenizer.push(spelled)
        if self._detokenizer.matched is not None:
            self._add_tokens(ids[:taken], output)
            self._stop_at_string()
            return
        self._add_tokens(ids, output)
        if reason is not None:
            self.end(reason, output.stop_reason)

    def end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """The answer is complete, or is broken off."""
        self.finish_reason, self.stop_reason = reason, stop_reason
        if self._detokenizer.finish():
            self._stop_at_string()
        self._logprob_decoder.finish(self._logprobs)

    def output(self, *, delta: bool) -> CompletionOutput:
        """The answer so far, or what is new of it since the last call."""
        first_token, first_letter = (self._sent_tokens, self._sent_text) if delta else (0, 0)
        text = self._detokenizer.text
        self._sent_tokens, self._sent_text = len(self.token_ids), len(text)
        self._end_sent = self.ended
        return CompletionOutput(
            index=self.index,
            text=text[first_letter:],
            token_ids=self.token_ids[first_token:],
            cumulative_logprob=self._cumulative_logprob if self._wants_logprobs else None,
            logprobs=self._logprobs[first_token:] if self._wants_logprobs else None,
            finish_reason=None if self.finish_reason is None else str(self.finish_reason),
            stop_reason=self.stop_reason,
        )

    def _add_tokens(self, ids: list[int], output: EngineOutput) -> None:
        self.token_ids += ids
        if self._wants_logprobs and output.new_logprobs is not None:
            for found in output.new_logprobs[: len(ids)]:
                self._logprobs.append(self._logprob_decoder.position(found))
                self._cumulative_logprob += found.logprobs[0]

    def _stop_at_string(self) -> None:
        self.finish_reason, self.stop_reason = FinishReason.STOP, self._detokenizer.matched
