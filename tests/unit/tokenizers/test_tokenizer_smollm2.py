"""The default model's tokenizer, built from its GGUF file: against llama.cpp's ids and against the Rust library."""

from __future__ import annotations

import functools
import time

import pytest
from tests import assets
from tests.tokenizers.reference_ids import hash_ids, hash_texts, read_reference, texts_for
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from octavo.lib.errors import InvalidRequestError
from octavo.lib.gguf import GGUFFile
from octavo.tokenizers import Tokenizer, TokenStream, load_tokenizer


@functools.cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(assets.smollm2_gguf())


@functools.cache
def texts() -> list[str]:
    return texts_for(tokenizer())


@functools.cache
def rust() -> RustTokenizer:
    """The model's `tokenizer.json`, as its authors wrote it, with the vocabulary of the GGUF file."""
    with GGUFFile.open(assets.smollm2_gguf()) as gguf:
        tokens = gguf.get_list("tokenizer.ggml.tokens", str)
        merges = [tuple(merge.split(" ")) for merge in gguf.get_list("tokenizer.ggml.merges", str)]
        kinds = gguf.get_list("tokenizer.ggml.token_type", int)
    made = RustTokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(
        [AddedToken(text, special=True) for text, kind in zip(tokens, kinds, strict=True) if kind == 3]
    )
    return made


def test_the_capital_of_france() -> None:
    assert tokenizer().encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer().decode([7042, 30, 198, 198, 504]) == " Paris.\n\nThe"


def test_facts() -> None:
    info = tokenizer().info
    assert info.vocab_size == 49152
    assert (info.bos_token_id, info.eos_token_id) == (1, 2)
    assert info.eos_token_ids[0] == 0
    assert 2 in info.eos_token_ids
    assert not info.add_bos
    assert info.special_tokens["bos_token"] == "<|im_start|>"
    assert tokenizer().chat_template is not None


@pytest.mark.parametrize("parse", [True, False])
def test_5000_texts_equal_llama_cpp(parse: bool) -> None:
    reference = read_reference("smollm2")
    assert hash_texts(texts()) == reference.texts, "the texts are not those that llama.cpp was asked about"
    for text, expected in zip(texts(), reference.ids[parse], strict=True):
        assert hash_ids(tokenizer().encode(text, parse_special=parse)) == expected, text


def test_examples_equal_llama_cpp() -> None:
    for text, ids in read_reference("smollm2").examples:
        assert tokenizer().encode(text) == ids


def test_5000_texts_equal_the_rust_library_both_ways() -> None:
    for text in texts():
        ids = tokenizer().encode(text)
        assert ids == rust().encode(text).ids, text
        for skip in (True, False):  # not always the text itself: the vocabulary lacks some control characters
            assert tokenizer().decode(ids, skip) == rust().decode(ids, skip_special_tokens=skip)


def test_special_tokens_are_one_id_each() -> None:
    assert tokenizer().encode("<|im_start|>user\nhi<|im_end|>") == [1, 4093, 198, 6004, 2]
    spelled = tokenizer().encode("<|im_start|>", parse_special=False)
    assert len(spelled) > 1
    assert not set(spelled) & tokenizer().special_ids
    assert tokenizer().encode("") == []
    assert tokenizer().decode(tokenizer().encode(" two  spaces")) == " two  spaces"


def test_skipping_special_tokens() -> None:
    ids = tokenizer().encode("<|im_start|>user\nhi<|im_end|>")
    assert tokenizer().decode(ids) == "user\nhi"
    assert tokenizer().decode(ids, skip_special_tokens=False) == "<|im_start|>user\nhi<|im_end|>"


def test_token_text_is_plain() -> None:
    ids = tokenizer().encode("今天 é ok")
    assert b"".join(map(tokenizer().token_bytes, ids)) == "今天 é ok".encode()
    assert not any("Ġ" in tokenizer().token_text(token_id) for token_id in ids)


@pytest.mark.parametrize("token_id", [-1, 49152, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    with pytest.raises(InvalidRequestError, match="not in the vocabulary, whose ids run from 0 to 49151"):
        tokenizer().decode([1, token_id])


def test_an_unpaired_surrogate_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"U\+D83D\) at character 2"):
        tokenizer().encode("ab\ud83dc")


def test_it_is_built_fast() -> None:
    start = time.process_time()
    load_tokenizer(assets.smollm2_gguf())
    assert time.process_time() - start < 0.5


def test_a_streamed_token_is_cheap() -> None:
    ids = tokenizer().encode("The quick brown fox jumps over the lazy dog. 今天 🙂 " * 200)
    stream = TokenStream(tokenizer())
    start = time.process_time()
    text = stream.push_all(ids)
    assert (time.process_time() - start) / len(ids) < 20e-6
    assert text + stream.finish() == tokenizer().decode(ids)
