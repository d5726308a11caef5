"""llama.cpp's 708 golden cases over 15 vocabularies, and texts against tokenizers made of the same vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.tokenizers import Tokenizer, load_tokenizer
from tests.tokenizers.goldens import golden_cases, models_folder

pytestmark = pytest.mark.slow

VOCABULARIES = {
    "bert-bge": 47,
    "command-r": 47,
    "deepseek-coder": 47,
    "deepseek-llm": 47,
    "falcon": 47,
    "gemma-4": 46,
    "gpt-2": 47,
    "llama-bpe": 47,
    "llama-spm": 47,
    "mpt": 47,
    "phi-3": 47,
    "qwen2": 47,
    "qwen35": 51,
    "refact": 47,
    "starcoder": 47,
}


def vocabulary(name: str) -> Path:
    return models_folder() / f"ggml-vocab-{name}.gguf"


def test_there_are_708_cases() -> None:
    assert sum(VOCABULARIES.values()) == 708


@pytest.mark.parametrize("name", VOCABULARIES)
def test_golden_cases(name: str) -> None:
    path = vocabulary(name)
    tokenizer = load_tokenizer(path)
    cases = list(golden_cases(path))
    assert len(cases) == VOCABULARIES[name]
    for text, ids in cases:
        assert encode(tokenizer, text) == ids, text


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)
