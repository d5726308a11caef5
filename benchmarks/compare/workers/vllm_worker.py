"""vLLM on the CPU, its `LLM` class, no prefix cache. Further options go to `LLM` as they are ("llm").

Threads are bound by `VLLM_CPU_OMP_THREADS_BIND` and the libraries preloaded by whoever starts this.
"""

from __future__ import annotations

from typing import Any

from protocol import Generate, serve
from vllm import LLM, SamplingParams


def load(options: dict[str, Any]) -> Generate:
    settings = {
        "dtype": "bfloat16",
        "max_model_len": 2048,
        "max_num_seqs": 64,
        "enable_prefix_caching": False,
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
    }
    llm = LLM(model=options["model"], **(settings | options.get("llm", {})))

    def generate(prompts: list[list[int]], tokens: int) -> int:
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = llm.generate(inputs, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return generate


if __name__ == "__main__":
    serve(load)
