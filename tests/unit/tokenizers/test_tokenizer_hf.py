"""Tokenizers from Hugging Face folders, against transformers on the same folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tokenizers.random_text import random_texts
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as RustTokenizer

from octavo.lib.errors import CheckpointError, InvalidRequestError, UnsupportedModelError
from octavo.tokenizers import TokenStream, load_tokenizer
from octavo.tokenizers.chat import render_chat
from octavo.tokenizers.pieces import byte_alphabet

transformers = pytest.importorskip("transformers")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<s>", "</s>", "<|im_end|>"]


def byte_level() -> RustTokenizer:
    tokens = [*byte_alphabet(), "he", "ll", "hell", "Ġw", "or"]
    rust = RustTokenizer(
        models.BPE(
            {text: i for i, text in enumerate(tokens)},
            [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w"), ("o", "r")],
        )
    )
    rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    return rust


def sentencepiece() -> RustTokenizer:
    tokens = ["<unk>", *BYTES, "▁", *"Helo.Wrdits'2+", "He", "▁He", "▁W"]
    rust = RustTokenizer(
        models.BPE(
            {text: i for i, text in enumerate(tokens)},
            [("H", "e"), ("▁", "He"), ("▁", "W")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    rust.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return rust


def metaspace() -> RustTokenizer:
    pieces = [
        ("<unk>", 0.0),
        ("▁", -2.0),
        *((letter, -4.0) for letter in "abcdeé.,"),
        ("▁ab", -1.0),
        ("cd", -1.5),
    ]
    rust = RustTokenizer(models.Unigram(pieces, 0, False))
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    rust.decoder = decoders.Metaspace()
    return rust


def wordpiece() -> RustTokenizer:
    tokens = ["[UNK]", "he", "##llo", "w", "##orld", ".", ",", "'", "s", "a"]
    rust = RustTokenizer(models.WordPiece({text: i for i, text in enumerate(tokens)}, unk_token="[UNK]"))
    rust.normalizer = normalizers.BertNormalizer()
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece()
    return rust


def no_decoder() -> RustTokenizer:
    rust = RustTokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    return rust


KINDS: dict[str, Callable[[], RustTokenizer]] = {
    "byte level": byte_level,
    "sentencepiece": sentencepiece,
    "metaspace": metaspace,
    "wordpiece": wordpiece,
    "no decoder": no_decoder,
}


def write(folder: Path, rust: RustTokenizer, config: dict[str, Any] | None = None) -> Path:
    rust.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    rust.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    rust.save(str(folder / "tokenizer.json"))
    known = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**known, **(config or {})}))
    return folder


def reference(folder: Path) -> Any:
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_transformers(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path, KINDS[kind]())
    ours, theirs = load_tokenizer(folder), reference(folder)
    plain = ["hello world", "He's  a 2 + 2.", "ab cd, abé.", "a b", "hello , world .", "  x  ", ""]
    for text in [*plain, *random_texts(4, 300, [*SPECIAL, "<tool>"])]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        for skip in (True, False):
            decoded = ours.decode(ids, skip)
            expected = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert decoded == expected, text
            stream = TokenStream(ours, skip_special_tokens=skip)
            assert stream.push_all(ids) + stream.finish() == decoded


def test_spaces_of_a_sentencepiece_model(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, sentencepiece()))
    text = "Hello.  World it's  2 + 2"
    ids = tokenizer.encode(text)
    stream = TokenStream(tokenizer)
    assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids) == text


@pytest.mark.parametrize("template", ["$A", "<s> $A", "<s> $A </s>", "$A </s>"])
@pytest.mark.parametrize("flag", [None, True, False])
def test_bos_and_eos(tmp_path: Path, template: str, flag: bool | None) -> None:
    rust = byte_level()
    rust.add_special_tokens(SPECIAL)
    ends = [(text, rust.token_to_id(text)) for text in ("<s>", "</s>") if text in template]
    rust.post_processor = processors.TemplateProcessing(single=template, special_tokens=ends)
    folder = write(tmp_path, rust, {} if flag is None else {"add_bos_token": flag})
    ours, theirs = load_tokenizer(folder), reference(folder)
    assert ours.encode("hell") == theirs.encode("hell")
    assert ours.encode("hell", add_special_tokens=False) == [258]
    assert ours.info.add_bos == template.startswith("<s>")
    assert ours.info.add_eos == template.endswith("</s>")


def test_control_tokens_as_letters(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, byte_level()))
    special = tokenizer.special_ids
    assert set(tokenizer.encode("a<s>b")) & special
    assert not set(tokenizer.encode("a<s>b", parse_special=False)) & special
    assert tokenizer.decode(tokenizer.encode("a<s>b", parse_special=False)) == "a<s>b"
    assert tokenizer.encode("<tool>", parse_special=False) == tokenizer.encode("<tool>")


def test_facts(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(
        write(tmp_path, byte_level(), {"pad_token": {"content": "</s>"}, "chat_template": "T"})
    )
    assert tokenizer.vocab_size == 265
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (261, 262)
    assert tokenizer.eos_token_ids == (262,)
    assert tokenizer.special_ids == {261, 262, 263}
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    assert tokenizer.chat_template == "T"


def test_special_tokens_map_fills_in(tmp_path: Path) -> None:
    folder = write(tmp_path, byte_level(), {"eos_token": None})
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": "x", "unk_token": {"content": "</s>"}})
    )
    assert load_tokenizer(folder).special_tokens == {"bos_token": "<s>", "unk_token": "</s>"}


def test_template_files_go_before_the_configuration(tmp_path: Path) -> None:
    folder = write(tmp_path, byte_level(), {"chat_template": "configured"})
    (folder / "chat_template.jinja").write_text("from file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert load_tokenizer(folder).chat_templates == {"default": "from file", "tool_use": "tools"}


def test_named_templates_of_the_configuration(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
    assert load_tokenizer(write(tmp_path, byte_level(), {"chat_template": named})).chat_templates == {
        "default": "D",
        "rag": "R",
    }


def test_a_template_that_writes_bos_has_it_once(tmp_path: Path) -> None:
    rust = byte_level()
    rust.add_special_tokens(SPECIAL)
    bos = ("<s>", rust.token_to_id("<s>"))
    rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[bos])
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    folder = write(tmp_path, rust, {"chat_template": template})
    ours, theirs = load_tokenizer(folder), reference(folder)
    messages = [{"role": "user", "content": "hello"}]
    assert ours.chat_template is not None
    text = render_chat(ours.chat_template, messages, special_tokens=ours.special_tokens)
    ids = ours.encode(text, add_special_tokens=False)
    assert ids == theirs.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert ids.count(bos[1]) == 1
    assert ours.info.add_bos


def test_truncation_and_padding_in_the_file_are_not_for_serving(tmp_path: Path) -> None:
    rust = byte_level()
    rust.enable_truncation(4)
    rust.enable_padding(length=8)
    assert len(load_tokenizer(write(tmp_path, rust)).encode("abcdefgh" * 3)) == 24


@pytest.mark.parametrize(
    "decoder", [decoders.CTC(), decoders.BPEDecoder(), decoders.Replace(Regex("a+"), "b")]
)
def test_an_unknown_decoder_is_refused(tmp_path: Path, decoder: Any) -> None:
    rust = byte_level()
    rust.decoder = decoder
    with pytest.raises(UnsupportedModelError, match="is not supported"):
        load_tokenizer(write(tmp_path, rust))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(UnsupportedModelError, match=r"has tokenizer\.model but no tokenizer\.json"):
        load_tokenizer(tmp_path)
    with pytest.raises(UnsupportedModelError, match="must be a folder"):
        load_tokenizer(tmp_path / "tokenizer.model")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model": {"vocab": 3}}', "\udcff"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: "):
        load_tokenizer(tmp_path)


def test_what_the_library_panics_at_is_an_error_of_the_file(tmp_path: Path) -> None:
    broken = json.loads(byte_level().to_str()) | {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(broken))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: is not a tokenizer"):
        load_tokenizer(tmp_path)


def test_a_text_that_the_library_panics_at_is_an_error_of_the_request(tmp_path: Path) -> None:
    rust = byte_level()
    rust.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")  # tries too many ways
    tokenizer = load_tokenizer(write(tmp_path, rust))
    for text in ("a" * 40 + "b", "a" * 4000 + "b"):
        with pytest.raises(InvalidRequestError, match="cannot read this text"):
            tokenizer.encode(text)


def test_a_text_without_a_token_for_its_letters_is_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, RustTokenizer(models.WordLevel({"a": 0}, unk_token="?"))))
    assert tokenizer.encode("a") == [0]
    with pytest.raises(InvalidRequestError, match="cannot read this text"):
        tokenizer.encode("b")


def test_nesting_without_end_is_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(CheckpointError, match="is not JSON"):
        load_tokenizer(tmp_path)


def test_templates_without_a_name_are_passed_over(tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "D"},
        {"name": "x"},
        {"template": "y"},
        {"name": 1, "template": []},
    ]
    folder = write(tmp_path, byte_level(), {"chat_template": named})
    assert load_tokenizer(folder).chat_templates == {"default": "D"}


def test_long_and_short_texts_are_read_alike(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, byte_level()))
    word = tokenizer.encode(" hello")
    assert tokenizer.encode(" hello" * 2000) == word * 2000


def test_a_text_may_fit_as_long_as_the_longest_token_allows(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, byte_level()))
    longest = max(map(len, SPECIAL))
    assert tokenizer.may_fit("x" * 10 * longest, 10)
    assert not tokenizer.may_fit("x" * (10 * longest + 1), 10)
