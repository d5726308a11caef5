"""A scheduler with an executor that says token 7 whenever a token is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.config.octavo_config import CacheConfig, SchedulerConfig
from octavo.scheduling.scheduler import Scheduler
from octavo.types.engine import EngineOutput, EngineRequest
from octavo.types.kv import KVGroup, KVLayout
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import RequestStep, StepOutput, StepPlan

TOKEN = 7


def layout(*windows: int, block_size: int = 16) -> KVLayout:
    """One group a window."""
    groups = tuple(KVGroup((number,), window) for number, window in enumerate(windows or (0,)))
    return KVLayout(block_size, 1, 8, "float32", groups)


def request(name: str, prompt: Sequence[int] | int, **fields: Any) -> EngineRequest:
    """A request; `prompt` may be a number of tokens (all different between names). Sampling fields may be given."""
    sampling = {
        key: fields.pop(key) for key in ("max_tokens", "min_tokens", "prompt_logprobs") if key in fields
    }
    if isinstance(prompt, int):
        start = sum(name.encode()) * 1000
        prompt = range(start, start + prompt)
    return EngineRequest(
        request_id=name, prompt_token_ids=list(prompt), sampling=SamplingParams(**sampling), **fields
    )


class Driver:
    """Runs steps and collects what comes out."""

    def __init__(
        self,
        *windows: int,
        num_blocks: int = 100,
        block_size: int = 16,
        max_model_len: int = 512,
        caching: bool = True,
        **limits: Any,
    ) -> None:
        self.now = 0.0
        self.scheduler = Scheduler(
            SchedulerConfig(**limits),
            CacheConfig(block_size=block_size, enable_prefix_caching=caching),
            layout(*windows, block_size=block_size),
            num_blocks,
            max_model_len,
            clock=lambda: self.now,
        )
        self.plans: list[StepPlan] = []
        self.outputs: list[EngineOutput] = []
        self.tokens: dict[str, list[int]] = {}

    def add(self, name: str, prompt: Sequence[int] | int, **fields: Any) -> None:
        self.scheduler.add(request(name, prompt, **fields))

    def answer(self, plan: StepPlan, **replies: int | str) -> list[EngineOutput]:
        """Finish a step. A reply is the token a request samples (instead of 7), or the error it fails with."""
        results = []
        for name, count in plan.num_scheduled_tokens.items():
            entry = self.scheduler.requests.get(name)
            due = entry is None or entry.num_computed_tokens + count == len(entry.token_ids)
            reply = replies.get(name, TOKEN)
            error = reply if isinstance(reply, str) else None
            token_ids = [reply] if due and isinstance(reply, int) else []
            results.append(RequestStep(request_id=name, token_ids=token_ids, error=error))
        return self.take(plan, StepOutput(step_id=plan.step_id, results=results))

    def take(self, plan: StepPlan, output: StepOutput) -> list[EngineOutput]:
        outputs = self.scheduler.update(plan, output)
        self.outputs += outputs
        for news in outputs:
            self.tokens.setdefault(news.request_id, []).extend(news.new_token_ids)
        self.scheduler.check_integrity()
        return outputs

    def step(self, **replies: int | str) -> StepPlan:
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        self.answer(plan, **replies)
        return plan

    def run(self, limit: int = 1000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(limit):
            if not self.scheduler.has_work():
                return
            self.step()
        raise AssertionError(f"not done after {limit} steps")

    def last(self, name: str) -> EngineOutput:
        return [news for news in self.outputs if news.request_id == name][-1]
