"""transformers' `generate`, one padded batch (all prompts of a sample are of one length), bfloat16."""

from __future__ import annotations

from typing import Any

import torch
from protocol import Generate, serve
from transformers import AutoModelForCausalLM


def load(options: dict[str, Any]) -> Generate:
    torch.set_num_threads(options["threads"])
    model = AutoModelForCausalLM.from_pretrained(options["model"], dtype=torch.bfloat16).eval()

    def generate(prompts: list[list[int]], tokens: int) -> int:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            answer = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                pad_token_id=0,
            )
        return int(answer[:, ids.shape[1] :].numel())

    return generate


if __name__ == "__main__":
    serve(load)
