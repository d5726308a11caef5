"""llama.cpp's 708 golden cases over 15 vocabularies, and texts against tokenizers made of the same vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from octavo.lib.gguf import GGUFFile
from octavo.tokenizers import Tokenizer, TokenStream, load_tokenizer
from tests import assets
from tests.tokenizers.goldens import golden_cases, models_folder
from tests.tokenizers.reference_ids import hash_ids, hash_texts, read_reference, texts_for

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


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "nomic-bert-moe", "gemma3"])
@pytest.mark.parametrize("parse", [True, False])
def test_5000_texts_equal_llama_cpp(name: str, parse: bool) -> None:
    path = assets.gemma3_gguf() if name == "gemma3" else vocabulary(name)
    tokenizer = load_tokenizer(path)
    texts, reference = texts_for(tokenizer), read_reference(name)
    assert hash_texts(texts) == reference.texts, "the texts are not those that llama.cpp was asked about"
    for text, expected in zip(texts, reference.ids[parse], strict=True):
        ids = tokenizer.encode(text, parse_special=parse)
        assert hash_ids(ids) == expected, text
        stream = TokenStream(tokenizer)
        assert stream.push_all(ids) + stream.finish() == tokenizer.decode(ids)
    for text, ids in reference.examples:
        assert tokenizer.encode(text) == ids


PATTERNS = {
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_5000_texts_equal_the_models_own_tokenizer(name: str) -> None:
    """The patterns are those of the models' `tokenizer.json`; the vocabulary is that of the GGUF file."""
    path = vocabulary(name)
    with GGUFFile.open(path) as gguf:
        tokens = gguf.get_list("tokenizer.ggml.tokens", str)
        kinds = gguf.get_list("tokenizer.ggml.token_type", int)
        merges = [tuple(merge.split(" ")) for merge in gguf.get_list("tokenizer.ggml.merges", str)]
    rust = RustTokenizer(
        models.BPE({text: i for i, text in enumerate(tokens)}, merges, ignore_merges=name == "llama-bpe")
    )
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    rust.decoder = decoders.ByteLevel()
    added = [text for text, kind in zip(tokens, kinds, strict=True) if kind in (3, 4)]
    rust.add_special_tokens([AddedToken(text, special=True) for text in added])
    tokenizer = load_tokenizer(path)
    for text in texts_for(tokenizer):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == rust.encode(text).ids, text
        assert tokenizer.decode(ids) == rust.decode(ids)
