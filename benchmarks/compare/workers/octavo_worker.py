"""Octavo itself, through its offline class; no prefix cache. Further options go to `LLM` as they are ("llm")."""

from __future__ import annotations

from typing import Any

from protocol import Generate, serve

from octavo import LLM, SamplingParams


def load(options: dict[str, Any]) -> Generate:
    llm = LLM(
        model=options["model"],
        threads=options["threads"],
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        disable_log_stats=True,
        **options.get("llm", {}),
    )

    def generate(prompts: list[list[int]], tokens: int) -> int:
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = llm.generate(inputs, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return generate


if __name__ == "__main__":
    serve(load)
