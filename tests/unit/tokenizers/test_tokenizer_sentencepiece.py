"""Vocabularies trained by SentencePiece itself, written to GGUF: against SentencePiece's own ids and texts."""

from __future__ import annotations

import pytest
import sentencepiece as spm
from tests.tokenizers.random_text import random_texts
from tests.tokenizers.sentencepiece_files import corpus, merged_by_score, to_gguf, train

from octavo.tokenizers import Tokenizer, TokenStream

# SentencePiece calls its end U+2585 "unknown"; texts with the marks of its own inner spelling are left out.
UNFIT = ("\x00", "▁", "\u2047", "\u2585")


def texts(count: int = 1500) -> list[str]:
    drawn = [*random_texts(11, count), *corpus()][: count + 300]
    return [text for text in drawn if not any(letter in text for letter in UNFIT)]


@pytest.fixture(scope="module")
def merges(tmp_path_factory: pytest.TempPathFactory) -> tuple[spm.SentencePieceProcessor, Tokenizer]:
    return merged_by_score(tmp_path_factory.mktemp("merges") / "vocabulary.gguf")


def test_merged_by_score(merges: tuple[spm.SentencePieceProcessor, Tokenizer]) -> None:
    processor, tokenizer = merges
    for text in texts():
        ids = tokenizer.encode(text)
        assert ids == [1, *processor.encode(text)], text
        assert tokenizer.decode(ids) == text


def test_byte_tokens_and_control_tokens_are_not_made_of_letters(
    merges: tuple[spm.SentencePieceProcessor, Tokenizer],
) -> None:
    processor, tokenizer = merges
    for text in ("<0x0A>", "</s>", "a<s>b"):
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        assert ids == processor.encode(text)
        assert not set(ids) & tokenizer.special_ids
    assert tokenizer.encode("a<s>b") != tokenizer.encode("a<s>b", parse_special=False)


def test_a_stretch_after_a_special_token_begins_with_a_space(
    merges: tuple[spm.SentencePieceProcessor, Tokenizer],
) -> None:
    processor, tokenizer = merges
    assert tokenizer.encode("the</s>of", add_special_tokens=False) == [
        *processor.encode("the"),
        2,
        *processor.encode("of"),
    ]


def test_streamed_as_decoded(merges: tuple[spm.SentencePieceProcessor, Tokenizer]) -> None:
    _, tokenizer = merges
    for text in ["Hello.  World it's  2 + 2", *texts(200)]:
        ids = tokenizer.encode(text)
        stream = TokenStream(tokenizer)
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids) == text


@pytest.fixture(scope="module", params=["nmt_nfkc", "identity"])
def unigram(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[spm.SentencePieceProcessor, Tokenizer]:
    processor = train(
        model_type="unigram",
        vocab_size=400,
        normalization_rule_name=request.param,
        user_defined_symbols=["<keep>", "[TAG]"],
    )
    charsmap = charsmap_of(processor)
    path = tmp_path_factory.mktemp("unigram") / "vocabulary.gguf"
    metadata = {"add_space_prefix": True, "remove_extra_whitespaces": True, "add_eos_token": False}
    if charsmap:
        metadata["precompiled_charsmap"] = charsmap  # type: ignore[assignment]
    return processor, to_gguf(processor, path, "t5", **metadata)


def charsmap_of(processor: spm.SentencePieceProcessor) -> list[int]:
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(processor.serialized_model_proto())
    return list(model.normalizer_spec.precompiled_charsmap)


def test_unigram(unigram: tuple[spm.SentencePieceProcessor, Tokenizer]) -> None:
    processor, tokenizer = unigram
    for text in texts():
        assert tokenizer.encode(text) == processor.encode(text), text
