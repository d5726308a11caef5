"""Python time of one step of the scheduler: `schedule()` plus `update()`, without any model.

    python -m benchmarks.scheduler_step [--requests 32] [--steps 2000]

Two layouts: one group of full attention, and six groups as Gemma 3 270M has them. Medians and 99th percentiles are over
pure decode steps.
"""

from __future__ import annotations

import argparse
import statistics
import time

from octavo.config.octavo_config import CacheConfig, SchedulerConfig
from octavo.scheduling.kv.groups import plan_groups
from octavo.scheduling.scheduler import Scheduler
from octavo.types.engine import EngineRequest
from octavo.types.kv import KVLayer
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import RequestStep, StepOutput

MODELS = {
    "30 full layers, 1 group": [KVLayer(3, 64)] * 30,
    "3 full and 15 window layers, 6 groups": [
        KVLayer(1, 256, 0 if layer % 6 == 5 else 512) for layer in range(18)
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Python time of one step of the scheduler")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    for name, layers in MODELS.items():
        seconds = sorted(step_seconds(layers, args.requests, args.steps))
        median, slow = statistics.median(seconds), seconds[len(seconds) * 99 // 100]
        print(
            f"{name}: {args.requests} decodes: median {median * 1e3:.3f} ms, 99% {slow * 1e3:.3f} ms a step"
        )


def step_seconds(layers: list[KVLayer], num_requests: int, num_steps: int) -> list[float]:
    """Seconds of each decode step with `num_requests` running requests."""
    max_model_len = num_steps + 128
    layout = plan_groups(layers, 32, "float32")
    num_blocks = num_requests * len(layout.groups) * (max_model_len // 32 + 1)
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(), layout, num_blocks, max_model_len)
    for number in range(num_requests):
        scheduler.add(_request(number, num_steps + 1))
    run_step(scheduler)
    return [run_step(scheduler) for _ in range(num_steps)]


def run_step(scheduler: Scheduler) -> float:
    """One step with a made-up answer; returns the seconds of the scheduler alone."""
    start = time.perf_counter()
    plan = scheduler.schedule()
    planned = time.perf_counter() - start
    results = [RequestStep(request_id=name, token_ids=[5]) for name in plan.num_scheduled_tokens]
    output = StepOutput(step_id=plan.step_id, results=results)
    start = time.perf_counter()
    scheduler.update(plan, output)
    return planned + time.perf_counter() - start


def _request(number: int, max_tokens: int) -> EngineRequest:
    return EngineRequest(
        request_id=f"request-{number}",
        prompt_token_ids=[number + position for position in range(20)],
        sampling=SamplingParams(max_tokens=max_tokens),
        stop_token_ids=[2],
    )


if __name__ == "__main__":
    main()
