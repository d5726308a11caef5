"""From an engine's tokens to what callers get: text, stop strings, log probabilities, n answers of one request. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.engine.answer import Answer
from octavo.engine.input import GenerationRequest, PoolingRequest
from octavo.engine.logprobs import PromptLogprobs
from octavo.engine.stats import FinishedRequest, StepStats
from octavo.lib.errors import InvalidRequestError, OctavoError, error_from_wire
from octavo.lib.origin import ORIGIN, Origin
from octavo.types.engine import EngineOutput, EngineOutputs, FinishReason
from octavo.types.outputs import PromptPositions, RequestMetrics, RequestOutput
from octavo.types.pooling_outputs import PoolingOutput, PoolingRequestOutput, floats_of
from octavo.types.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from octavo.tokenizers.base import Tokenizer


class OpenRequest:
    """A request whose answers are not all ended."""

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer | None) -> None:
        self.request = request
        self.kind = request.sampling.output_kind
        self.answers = [Answer(index, child, tokenizer) for index, child in enumerate(request.children)]
        self.metrics = RequestMetrics(arrival_time=request.arrival_time)
        self.num_cached_tokens = 0
        self.origin = ORIGIN.get()
        self.prompt_logprobs: PromptLogprobs | None = None
        if request.sampling.prompt_logprobs is not None:
            self.prompt_logprobs = PromptLogprobs(
                tokenizer, request.prompt_token_ids, flat=request.sampling.flat_logprobs
            )
        self.error: OctavoError | None = None
        self._prompt_logprobs_sent = False
        self._num_running = len(self.answers)

    @property
    def finished(self) -> bool:
        """Whether every answer is ended."""
        return not self._num_running

    @property
    def open_ids(self) -> list[str]:
        """The engine's ids of the answers that still run."""
        return [answer.engine_id for answer in self.answers if not answer.ended]

    def take(self, answer: Answer, output: EngineOutput) -> bool:
        """Take in what a step brought to one of the answers; whether that one is ended now."""
        if output.events:
            self.metrics.queued_time = self.metrics.queued_time or output.events.get("queued")
            self.metrics.scheduled_time = self.metrics.scheduled_time or output.events.get("scheduled")
        if output.num_cached_tokens > self.num_cached_tokens:
            self.num_cached_tokens = output.num_cached_tokens
        if output.new_prompt_logprobs and self.prompt_logprobs is not None:
            self.prompt_logprobs.extend(output.new_prompt_logprobs)
        answer.take(output)
        if answer.ended:
            self._num_running -= 1
        return answer.ended

    def end(self, reason: FinishReason, error: OctavoError | None = None) -> None:
        """End all answers that still run."""
        self.error = self.error or error
        for answer in self.answers:
            if not answer.ended:
                answer.end(reason)
        self._num_running = 0

    def news(self) -> RequestOutput | PoolingRequestOutput | None:
        """What to hand out now, by the request's output kind; None: nothing yet."""
        finished = self.finished
        if self.kind is RequestOutputKind.FINAL_ONLY and not finished:
            return None
        waits = self.prompt_logprobs is not None and not self.prompt_logprobs.complete
        if waits and not finished:
            return None
        delta = self.kind is RequestOutputKind.DELTA
        changed = [answer for answer in self.answers if answer.has_news]
        if not changed and not (finished and not delta):
            return None
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self.request.prompt,
            prompt_token_ids=self.request.prompt_token_ids,
            outputs=[answer.output(delta=delta) for answer in (changed if delta else self.answers)],
            finished=finished,
            prompt_logprobs=self._take_prompt_logprobs(delta),
            num_cached_tokens=self.num_cached_tokens,
            metrics=self.metrics,
            error=self.error.message if self.error else None,
        )

    def summary(self, now: float) -> FinishedRequest:
        """The numbers of an ended request."""
        sampling = self.request.sampling
        return FinishedRequest(
            finish_reasons=tuple(str(answer.finish_reason) for answer in self.answers),
            num_prompt_tokens=len(self.request.prompt_token_ids),
            num_cached_tokens=self.num_cached_tokens,
            num_generation_tokens=tuple(len(answer.token_ids) for answer in self.answers),
            max_tokens=sampling.max_tokens or 0,
            n=sampling.n,
            metrics=self.metrics,
            finished_time=now,
            request_id=self.request.request_id,
            sampling=sampling,
            origin=self.origin,
        )

    def _take_prompt_logprobs(self, delta: bool) -> PromptPositions | None:
        if self.prompt_logprobs is None or (delta and self._prompt_logprobs_sent):
            return None
        self._prompt_logprobs_sent = True
        return self.prompt_logprobs.positions


class OpenPooling(OpenRequest):
    """A request for a vector, which comes all at once."""

    def __init__(self, request: PoolingRequest) -> None:
        super().__init__(request, None)
        self._pooled = b""

    def take(self, answer: Answer, output: EngineOutput) -> bool:
        """Take in the vector, with which the request ends."""
        self._pooled = output.pooled or b""
        return super().take(answer, output)

    def news(self) -> PoolingRequestOutput | None:
        """The vector, once it is there."""
        if not self.finished:
            return None
        return PoolingRequestOutput(
            request_id=self.request.request_id,
            outputs=PoolingOutput(floats_of(self._pooled)),
            prompt_token_ids=self.request.prompt_token_ids,
            prompt=self.request.prompt,
            num_cached_tokens=self.num_cached_tokens,
            metrics=self.metrics,
            error=self.error.message if self.error else None,
        )

    def count(self, stats: StepStats) -> None:
        """Count the prompt, as there is no first token that would."""
        if self.error is None:
            stats.num_prompt_tokens += len(self.request.prompt_token_ids)
            stats.num_cached_tokens += self.num_cached_tokens
            self.metrics.last_token_time = stats.timestamp


@dataclass
class ProcessedStep:
    """What to do after a step."""

    outputs: list[RequestOutput | PoolingRequestOutput] = field(default_factory=list)
    failures: dict[str, OctavoError] = field(default_factory=dict)
    """By request id; such a request's last output is in `outputs` too."""
    to_abort: list[str] = field(default_factory=list)
    """Engine ids of answers that ended here (a stop string, a failed sibling) while the engine still runs them."""
    stats: StepStats = field(default_factory=lambda: StepStats(timestamp=time.monotonic()))


class OutputProcessor:
    """Keeps the open requests of one front.

    Args:
        tokenizer: None: answers have token ids and no text.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._requests: dict[str, OpenRequest] = {}
        self._answers: dict[str, tuple[OpenRequest, Answer]] = {}

    @property
    def num_open(self) -> int:
        """Requests that are not ended."""
        return len(self._requests)

    @property
    def request_ids(self) -> list[str]:
        """Of the open requests."""
        return list(self._requests)

    def ids_of(self, origin: Origin) -> list[str]:
        """Of the open requests that came of one call."""
        return [request_id for request_id, opened in self._requests.items() if opened.origin is origin]

    def add(self, request: GenerationRequest) -> None:
        """Open a request.

        Raises:
            InvalidRequestError: its id is that of an open one.
        """
        if request.request_id in self._requests:
            raise InvalidRequestError(
                f"A request with id {request.request_id!r} is running.", param="request_id"
            )
        if isinstance(request, PoolingRequest):
            opened: OpenRequest = OpenPooling(request)
        else:
            opened = OpenRequest(request, self._tokenizer)
        self._requests[request.request_id] = opened
        self._answers.update({answer.engine_id: (opened, answer) for answer in opened.answers})

    def process(self, step: EngineOutputs) -> ProcessedStep:
        """Take in what an engine sent; unknown ids (aborted meanwhile) are ignored."""
        done = ProcessedStep()
        done.stats.scheduler = step.stats
        touched: dict[OpenRequest, None] = {}
        for output in step.outputs:
            found = self._answers.get(output.request_id)
            if found is None:
                continue
            opened, answer = found
            touched[opened] = None
            self._take(opened, answer, output, done)
        for opened in touched:
            self._hand_out(opened, done)
        return done

    def abort(self, request_ids: Iterable[str]) -> ProcessedStep:
        """End requests because their callers want no more; `to_abort` is for the engine."""
        return self._end(request_ids, FinishReason.ABORT, None)

    def fail(self, request_ids: Iterable[str], error: OctavoError) -> ProcessedStep:
        """End requests with an error."""
        return self._end(request_ids, FinishReason.ERROR, error)

    def _end(
        self, request_ids: Iterable[str], reason: FinishReason, error: OctavoError | None
    ) -> ProcessedStep:
        done = ProcessedStep()
        for request_id in list(request_ids):
            opened = self._requests.get(request_id)
            if opened is not None:
                done.to_abort.extend(opened.open_ids)
                opened.end(reason, error)
                self._hand_out(opened, done)
        return done

    def _take(self, opened: OpenRequest, answer: Answer, output: EngineOutput, done: ProcessedStep) -> None:
        if output.finish_reason is FinishReason.ERROR:
            siblings = [engine_id for engine_id in opened.open_ids if engine_id != answer.engine_id]
            done.to_abort.extend(siblings)
            message = output.error or "The request failed."
            opened.end(FinishReason.ERROR, error_from_wire(output.error_type, message, output.error_param))
            return
        if answer.ended:
            return
        first, before = not answer.token_ids, len(answer.token_ids)
        ended = opened.take(answer, output)
        if ended and output.finish_reason is None:
            done.to_abort.append(answer.engine_id)
        _count(opened, answer, len(answer.token_ids) - before, first, done.stats)

    def _hand_out(self, opened: OpenRequest, done: ProcessedStep) -> None:
        news = opened.news()
        if news is not None:
            done.outputs.append(news)
        if opened.error is not None:
            done.failures[opened.request.request_id] = opened.error
        if opened.finished:
            if isinstance(opened, OpenPooling):
                opened.count(done.stats)
            self._close(opened)
            done.stats.finished.append(opened.summary(done.stats.timestamp))

    def _close(self, opened: OpenRequest) -> None:
        del self._requests[opened.request.request_id]
        for answer in opened.answers:
            del self._answers[answer.engine_id]


def _count(opened: OpenRequest, answer: Answer, new_tokens: int, first: bool, stats: StepStats) -> None:
    """Count tokens and the times between them."""
    if not new_tokens:
        return
    stats.num_generation_tokens += new_tokens
    now, metrics = stats.timestamp, opened.metrics
    if metrics.first_token_time is None:
        metrics.first_token_time = now
        stats.num_prompt_tokens += len(opened.request.prompt_token_ids)
        stats.num_cached_tokens += opened.num_cached_tokens
        stats.times_to_first_token.append(now - metrics.arrival_time)
    elif not first and answer.last_token_time is not None:
        stats.inter_token_latencies.append(now - answer.last_token_time)
    answer.last_token_time = metrics.last_token_time = now
