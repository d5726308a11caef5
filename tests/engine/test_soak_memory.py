"""A99: resident memory stays level over thousands of different prompts, with real kernels and a prefix cache."""

from __future__ import annotations

import gc
import json
import random
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.assets import smollm2_gguf

from octavo import LLM, SamplingParams

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "vocab_size": 1000,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


@pytest.mark.slow
@pytest.mark.parametrize("prompts_a_half", [3000])
def test_resident_memory_stays_level(tmp_path: Path, prompts_a_half: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    settings = {
        "tokenizer": str(smollm2_gguf()),
        "load_format": "dummy",
        "num_blocks_override": 256,
        "threads": 1,
    }
    numbers = random.Random(11)
    process = psutil.Process()
    params = SamplingParams(max_tokens=1, temperature=0.0)

    def half(llm: LLM) -> int:
        for _ in range(prompts_a_half // 100):
            prompts = [[numbers.randrange(1000) for _ in range(200)] for _ in range(100)]
            outputs = llm.generate(prompts, params, use_tqdm=False)
            assert all(len(output.outputs[0].token_ids) == 1 for output in outputs)
        gc.collect()
        return process.memory_info().rss

    with LLM(str(tmp_path), **settings) as llm:
        first = half(llm)
        second = half(llm)
    assert second - first < 0.02 * first
