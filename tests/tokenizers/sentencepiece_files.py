"""Vocabularies trained by SentencePiece on a small text of ours, and written to GGUF."""

from __future__ import annotations

import io
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import sentencepiece as spm

from octavo.tokenizers import Tokenizer, load_tokenizer
from tests.tokenizers.gguf_files import write_gguf


def corpus() -> Iterator[str]:
    """3,000 lines, the same each time."""
    rng = random.Random(3)
    words = [
        "the",
        "of",
        "and",
        "token",
        "space",
        "model",
        "letters",
        "merge",
        "score",
        "piece",
        "byte",
        "Straße",
        "café",
        "naïve",
        "東京",
        "日本",
        "привет",
        "12",
        "2024",
    ]
    for _ in range(3000):
        yield " ".join(rng.choices(words, k=rng.randrange(1, 12))) + rng.choice([".", "", "!", "  end"])


def train(**options: object) -> spm.SentencePieceProcessor:
    """A vocabulary of the corpus."""
    model = io.BytesIO()
    logging.disable(logging.INFO)
    spm.SentencePieceTrainer.train(
        sentence_iterator=corpus(),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    logging.disable(logging.NOTSET)
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def to_gguf(processor: spm.SentencePieceProcessor, path: Path, model: str, **metadata: object) -> Tokenizer:
    """The vocabulary as a GGUF file, loaded; `metadata` as for `write_gguf`."""
    ids = range(processor.vocab_size())
    kinds = [
        2
        if processor.is_unknown(i)
        else 3
        if processor.is_control(i)
        else 6
        if processor.is_byte(i)
        else 5
        if processor.is_unused(i)
        else 4
        if processor.id_to_piece(i) in ("<keep>", "[TAG]")
        else 1
        for i in ids
    ]
    write_gguf(
        path,
        {
            "model": model,
            "tokens": [processor.id_to_piece(i) for i in ids],
            "scores": [float(processor.get_score(i)) for i in ids],
            "token_type": kinds,
            "bos_token_id": processor.bos_id(),
            "eos_token_id": processor.eos_id(),
            "unknown_token_id": processor.unk_id(),
            **metadata,  # type: ignore[dict-item]
        },
    )
    return load_tokenizer(path)


def merged_by_score(path: Path, **metadata: object) -> tuple[spm.SentencePieceProcessor, Tokenizer]:
    """A vocabulary as Llama 2's: merges, byte fallback, BOS before a text."""
    processor = train(
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        character_coverage=0.999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
    )
    known = {"add_space_prefix": True, "add_bos_token": True} | metadata
    return processor, to_gguf(processor, path, "llama", **known)
