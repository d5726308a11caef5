"""OpenVINO GenAI: one prompt through `LLMPipeline`, several through `ContinuousBatchingPipeline`.

Options beside model and threads: "properties" (of the plugin), "scheduler" (fields of `SchedulerConfig`), "single" (its
`ATTENTION_BACKEND`, or "batching" to send single prompts to the batching pipeline too).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import Generate, serve


def load(options: dict[str, Any]) -> Generate:
    properties = {"INFERENCE_NUM_THREADS": options["threads"], "PERFORMANCE_HINT": "LATENCY"}
    properties |= options.get("properties", {})
    batching = _Batching(options, properties)
    if options.get("single") == "batching":
        return batching
    single = genai.LLMPipeline(
        options["model"], "CPU", ATTENTION_BACKEND=options.get("single", "SDPA"), **properties
    )

    def generate(prompts: list[list[int]], tokens: int) -> int:
        if len(prompts) > 1:
            return batching(prompts, tokens)
        return len(single.generate(_tensor(prompts[0]), _greedy(tokens)).tokens[0])

    return generate


class _Batching:
    def __init__(self, options: dict[str, Any], properties: dict[str, Any]) -> None:
        scheduler = genai.SchedulerConfig()
        fields = {"cache_size": 2, "enable_prefix_caching": False} | options.get("scheduler", {})
        for name, value in fields.items():
            setattr(scheduler, name, value)
        self._pipeline = genai.ContinuousBatchingPipeline(options["model"], scheduler, "CPU", properties)

    def __call__(self, prompts: list[list[int]], tokens: int) -> int:
        inputs = [_tensor(prompt) for prompt in prompts]
        results = self._pipeline.generate(inputs, [_greedy(tokens)] * len(prompts))
        return sum(len(result.m_generation_ids[0]) for result in results)


def _tensor(prompt: list[int]) -> ov.Tensor:
    return ov.Tensor(np.array([prompt], np.int64))


def _greedy(tokens: int) -> genai.GenerationConfig:
    return genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)


if __name__ == "__main__":
    serve(load)
