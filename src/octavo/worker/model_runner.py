"""One step of the model: prepare -> forward -> sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.attention.metadata import ForwardBatch
from octavo.lib.errors import OctavoError
from octavo.models.decoder import Decoder
from octavo.sampling import SampledRow, Sampler
from octavo.sampling.sampler import token_logprobs
from octavo.types.engine import TokenLogprobs
from octavo.types.kv import KVLayout
from octavo.types.step import NewRequest, RequestStep, StepOutput, StepPlan
from octavo.worker.grammars import GrammarTable
from octavo.worker.input_batch import InputBatch, PreparedStep
from octavo.worker.kv_tensors import KVTensors
from octavo.worker.pooler import Pooler
from octavo.worker.recorded_model import RecordedModel

# Rows of logits computed at a time. They bound memory: 64 rows of a 256k vocabulary are 64 MiB.
PROMPT_LOGPROBS_ROWS = 64
MAX_LOGITS_BYTES = 64 << 20


class Model(Protocol):
    """What the runner asks of a model (see `octavo.models.decoder.Decoder`)."""

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Hidden states [M, H] after the final norm, the caller's until the next call; writes keys and values."""

    def compute_logits(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Of rows [R] of what `forward` returned: [R, V] float32, the caller's until the next call."""


class ModelRunner:
    """Runs plans on one model.

    Args:
        model: The decoder.
        layout: Page geometry, as the scheduler has it.
        num_blocks: Blocks of the pool, the null page not counted.
        vocab_size: Columns of the logits.
        max_num_seqs: Requests in the persistent batch at a time.
        pooler: For requests that want a vector; None: there are none.
        sampler: Draws tokens; default: one without logits processors.
        grammars: For requests whose answers must have a shape; None: there are none.
    """

    def __init__(
        self,
        model: Model,
        layout: KVLayout,
        num_blocks: int,
        *,
        vocab_size: int,
        max_num_seqs: int = 256,
        pooler: Pooler | None = None,
        sampler: Sampler | None = None,
        grammars: GrammarTable | None = None,
    ) -> None:
        self.model: Model = model
        self.kv = KVTensors(layout, num_blocks)
        self._sampler = sampler or Sampler()
        has_processors = bool(self._sampler.processors)
        self.batch = InputBatch(
            layout, max_num_seqs, vocab_size, has_processors=has_processors, grammars=grammars
        )
        self._bindings = self.kv.bindings()
        self._prepared: tuple[PreparedStep, ForwardBatch] | None = None
        self._pooler = pooler
        self._rows_at_a_time = max(1, MAX_LOGITS_BYTES // (4 * vocab_size))

    @torch.inference_mode()
    def record(self, decoder: Decoder, max_tokens: int) -> None:
        """From now on replay the decoder's forward natively, for steps of up to `max_tokens` tokens."""
        self.model = RecordedModel(
            decoder,
            self._bindings,
            len(self.kv.layout.groups),
            max_tokens=max_tokens,
            max_logits_rows=max(self._rows_at_a_time, PROMPT_LOGPROBS_ROWS),
        )

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepOutput:
        """Run one step.

        Returns:
            One result for each scheduled request, in the plan's order.
        """
        self.batch.update(plan)
        self._note_pooled(plan.new_requests)
        if not plan.num_scheduled_tokens:
            return StepOutput(step_id=plan.step_id, results=[])
        step = self.batch.prepare(plan)
        if step.decodes and (results := self._decode(step, plan.num_steps)):
            return StepOutput(step_id=plan.step_id, results=results)
        hidden = self.forward(step)
        self.batch.advance(step)
        results = [RequestStep(request_id=request_id, token_ids=[]) for request_id in step.request_ids]
        self._add_prompt_logprobs(step, hidden, results)
        self._sample(step, hidden, results)
        self._pool(step, hidden, results)
        return StepOutput(step_id=plan.step_id, results=results)

    def forward(self, step: PreparedStep) -> torch.Tensor:
        """Run the model over a prepared step: hidden states [M, H]. Tests watch this method."""
        return self.model.forward(self._forward_batch(step))

    def _forward_batch(self, step: PreparedStep) -> ForwardBatch:
        """What the model gets to see of a step; the same object for the same step."""
        if self._prepared is None or self._prepared[0] is not step:
            batch = ForwardBatch(step.token_ids, step.positions, step.attention, self._bindings, step.embeds)
            self._prepared = step, batch
        return self._prepared[1]

    def _decode(self, step: PreparedStep, num_steps: int) -> list[RequestStep]:
        """Up to `num_steps` decode steps in one call; empty where that is not possible, or where the first one fails."""
        model, sampling = self.model, self.batch.sampling
        if not isinstance(model, RecordedModel) or len(step.slots) > model.max_decode_seqs:
            return []
        draw = sampling.draw(step.slots)
        if draw is None:
            return []
        uniforms = None if draw.all_greedy else sampling.uniforms(step.slots, num_steps)
        batch, block_size = self._forward_batch(step), self.kv.layout.block_size
        tokens = model.decode(batch, draw, uniforms, block_size, num_steps)
        if not len(
            tokens
        ):  # nothing was advanced: the step is run again the plain way, which says what is wrong
            return []
        self.batch.advance_decode(step, tokens)
        return [
            RequestStep(request_id=request_id, token_ids=drawn)
            for request_id, drawn in zip(step.request_ids, tokens.T.tolist(), strict=True)
        ]

    def _sample(self, step: PreparedStep, hidden: torch.Tensor, results: list[RequestStep]) -> None:
        rows = step.sampled_rows()
        for first in range(0, len(rows), self._rows_at_a_time):
            part = step.sampled[first : first + self._rows_at_a_time]
            logits = self.model.compute_logits(hidden, rows[first : first + len(part)])
            sampled = self._sample_rows(logits, step.slots[part])
            self._keep(step, part.tolist(), sampled, results)

    def _sample_rows(self, logits: torch.Tensor, slots: NDArray[np.int64]) -> list[SampledRow]:
        batch, masked = self.batch.sampling.batch(slots), self.batch.grammars.mask(slots)
        if masked is None:
            return self._sampler(logits, batch)
        sampled = self._sampler(logits, replace(batch, grammar=masked.mask))
        for row, error in masked.errors.items():
            sampled[row].error, sampled[row].error_type = error.message, error.error_type
        return sampled

    def _note_pooled(self, requests: list[NewRequest]) -> None:
        for request in requests:
            if request.pooling is not None:
                if self._pooler is None:
                    raise OctavoError(
                        f"request {request.request_id!r} is to be pooled, but there is no pooler"
                    )
                self._pooler.add(self.batch.slot_of(request.request_id), request.pooling)

    def _pool(self, step: PreparedStep, hidden: torch.Tensor, results: list[RequestStep]) -> None:
        pooled = np.flatnonzero(self.batch.is_pooled[step.slots])
        if len(pooled) and self._pooler is not None:
            self._pooler.pool(step, pooled, hidden, self._logits_in_parts, results)

    def _logits_in_parts(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Of rows [R], however many: what the model's head gives, the caller's to keep."""
        parts = torch.split(rows, self._rows_at_a_time)
        return torch.cat([self.model.compute_logits(hidden, part).clone() for part in parts])

    def _keep(
        self, step: PreparedStep, requests: list[int], sampled: list[SampledRow], results: list[RequestStep]
    ) -> None:
        """Write sampled tokens into the results and the persistent batch."""
        good = []
        for request, row in zip(requests, sampled, strict=True):
            result = results[request]
            if row.error is not None or result.error is not None:
                result.error, result.error_type = result.error or row.error, row.error_type
                continue
            result.token_ids = [row.token_id]
            result.logprobs = None if row.logprobs is None else [row.logprobs]
            good.append((request, row.token_id))
        if good:
            indices, tokens = np.array(good, np.int64).T
            self.batch.append(step.slots[indices], tokens[None])
            self._advance_grammars(step.slots[indices], [results[request] for request, _ in good])

    def _advance_grammars(self, slots: NDArray[np.int64], results: list[RequestStep]) -> None:
        """What follows from the drawn tokens where answers have a grammar."""
        for slot, result in zip(slots.tolist(), results, strict=True):
            if forced := self.batch.grammars.advance(slot, result):
                self.batch.append(np.array([slot]), np.array(forced, np.int64)[:, None])

    def _add_prompt_logprobs(
        self, step: PreparedStep, hidden: torch.Tensor, results: list[RequestStep]
    ) -> None:
        for request in np.flatnonzero(self.batch.wants_prompt_logprobs[step.slots]).tolist():
            results[request].prompt_logprobs = found = []
            for part in self._prompt_parts(step, hidden, request):
                if part is None:
                    results[request].error = "the model's logits of the prompt are not finite numbers"
                    break
                found.extend(part)

    def _prompt_parts(
        self, step: PreparedStep, hidden: torch.Tensor, request: int
    ) -> Iterator[list[TokenLogprobs] | None]:
        """Log probabilities of the prompt tokens that this step's positions predict, a few rows at a time; None: NaN.

        The position before a prompt token predicts it, so the range is shifted by one against the tokens computed.
        """
        slot, start = int(step.slots[request]), int(step.start[request])
        first_row, end_row = step.query_start[request : request + 2].tolist()
        end_row = min(end_row, first_row + int(self.batch.num_prompt[slot]) - 1 - start)
        count = self.batch.sampling.num_prompt_logprobs(slot)
        for row in range(first_row, end_row, PROMPT_LOGPROBS_ROWS):
            size = min(PROMPT_LOGPROBS_ROWS, end_row - row)
            position = start + row - first_row + 1
            targets = torch.from_numpy(
                self.batch.tokens.values[slot, position : position + size].astype(np.int64)
            )
            logits = self.model.compute_logits(hidden, torch.arange(row, row + size))
            finite = bool(torch.isfinite(logits.amax(dim=1)).all())  # amax hands a NaN on
            as_logits = self._sampler.reports_logits
            yield token_logprobs(logits, targets, [count] * size, as_logits=as_logits) if finite else None
