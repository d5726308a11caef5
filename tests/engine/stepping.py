"""A scheduler and a model runner, stepped by hand: the engine's core without processes, for tests that look inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from octavo import ops
from octavo.config.octavo_config import CacheConfig, SchedulerConfig
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model
from octavo.models.registry import build_spec
from octavo.scheduling.kv.groups import plan_groups
from octavo.scheduling.scheduler import Scheduler
from octavo.structured_output.engine import GrammarEngine
from octavo.types.engine import EngineRequest, FinishReason, TokenLogprobs
from octavo.types.sampling_params import SamplingParams
from octavo.worker.grammars import GrammarTable
from octavo.worker.input_batch import PreparedStep
from octavo.worker.model_runner import ModelRunner

MAX_MODEL_LEN = 2048


def load(path: Path, load_format: str = "auto") -> Decoder:
    """A model, its sequences limited to `MAX_MODEL_LEN`."""
    hf = HFConfig.from_path(str(path))
    spec = build_spec(hf)
    return load_model(
        str(path), hf, spec.limited_to(min(MAX_MODEL_LEN, spec.max_position)), load_format=load_format
    )


def write_config(folder: Path, config: dict[str, Any]) -> Path:
    """A checkpoint of pseudo-random weights needs no more than this."""
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Kernels on that many threads."""
    before = ops.num_threads()
    ops.set_num_threads(count)
    try:
        yield
    finally:
        ops.set_num_threads(before)


class RecordingRunner(ModelRunner):
    """Keeps a digest of the logits of every computed position, whether it is sampled or not."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.digests: dict[str, dict[int, bytes]] = {}
        self.conflicts: list[tuple[str, int]] = []

    def forward(self, step: PreparedStep) -> torch.Tensor:
        hidden = super().forward(step)
        rows = 0
        for request_id, first, count in self._ranges(step):
            for start in range(0, count, 64):
                size = min(64, count - start)
                logits = self.model.compute_logits(
                    hidden, torch.arange(rows + start, rows + start + size)
                ).numpy()
                for offset in range(size):
                    self._note(
                        request_id, first + start + offset, hashlib.sha1(logits[offset].tobytes()).digest()
                    )
            rows += count
        return hidden

    def _ranges(self, step: PreparedStep) -> Iterator[tuple[str, int, int]]:
        counts = step.attention.seq_lens.numpy() - step.start
        yield from zip(step.request_ids, step.start.tolist(), counts.tolist(), strict=True)

    def _note(self, request_id: str, position: int, digest: bytes) -> None:
        known = self.digests.setdefault(request_id, {}).setdefault(position, digest)
        if known != digest:  # computed twice, after a preemption
            self.conflicts.append((request_id, position))


@dataclass
class Answer:
    """What came of a request so far."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_cached_tokens: int = 0
    error: str | None = None
    finished: bool = False
    finish_reason: FinishReason | None = None


class Stepper:
    """One engine's scheduler and runner."""

    def __init__(
        self,
        model: Decoder,
        *,
        num_blocks: int = 512,
        block_size: int = 16,
        max_num_batched_tokens: int = 2048,
        long_prefill_token_threshold: int = 0,
        enable_prefix_caching: bool = False,
        max_num_seqs: int = 64,
        kv_dtype: str = "float32",
        runner: Callable[..., ModelRunner] = ModelRunner,
        recorded: bool = False,
        max_decode_steps: int = 1,
        grammars: GrammarEngine | None = None,
    ) -> None:
        self.layout = plan_groups(model.spec.kv_layers(), block_size, kv_dtype)
        config = SchedulerConfig(
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            long_prefill_token_threshold=long_prefill_token_threshold,
        )
        cache = CacheConfig(block_size=block_size, enable_prefix_caching=enable_prefix_caching)
        self.scheduler = Scheduler(config, cache, self.layout, num_blocks, model.spec.max_position)
        self.runner = runner(
            model,
            self.layout,
            num_blocks,
            vocab_size=model.spec.vocab_size,
            max_num_seqs=max_num_seqs,
            grammars=None if grammars is None else GrammarTable(grammars, model.spec.vocab_size),
        )
        if recorded:
            self.runner.record(model, max_num_batched_tokens)
        self.max_decode_steps = max_decode_steps
        self.steps_planned = 0
        self.errors_expected = False
        self.answers: dict[str, Answer] = {}
        self.num_preemptions = 0
        self.step_sizes: list[int] = []

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        sampling: SamplingParams,
        stop_token_ids: Sequence[int] = (),
        output_token_ids: Sequence[int] = (),
    ) -> None:
        """Queue a request that runs to its `max_tokens`, or to one of the stop ids."""
        self.answers[request_id] = Answer()
        self.scheduler.add(
            EngineRequest(
                request_id=request_id,
                prompt_token_ids=list(prompt),
                sampling=sampling,
                stop_token_ids=list(stop_token_ids),
                output_token_ids=list(output_token_ids),
            )
        )

    def step(self) -> None:
        """One step."""
        plan = self.scheduler.schedule(self.max_decode_steps)
        self.steps_planned += plan.num_steps
        self.step_sizes.append(plan.total_tokens)
        for output in self.scheduler.update(plan, self.runner.execute(plan)):
            answer = self.answers[output.request_id]
            answer.error = output.error
            assert output.error is None or self.errors_expected, output.error
            answer.token_ids += output.new_token_ids
            answer.logprobs += output.new_logprobs or []
            answer.prompt_logprobs += output.new_prompt_logprobs or []
            answer.num_cached_tokens = output.num_cached_tokens
            answer.finished = output.finish_reason is not None
            answer.finish_reason = output.finish_reason
        self.num_preemptions += self.scheduler.stats().num_preemptions

    def abort(self, request_id: str) -> None:
        """End a request early."""
        self.scheduler.abort([request_id])

    def run(self) -> dict[str, Answer]:
        """Step until nothing is left to do."""
        while self.scheduler.has_work():
            self.step()
        self.scheduler.check_integrity()
        return self.answers
