"""Every kind of GGUF vocabulary on hand-made files, and what is refused."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from tests.tokenizers.gguf_files import Value, write_gguf
from tokenizers import Regex, pre_tokenizers

from octavo.lib.errors import CheckpointError, OctavoError, UnsupportedModelError
from octavo.tokenizers import Tokenizer, load_tokenizer
from octavo.tokenizers.chat import render_chat
from octavo.tokenizers.gguf.greedy import unescape
from octavo.tokenizers.gguf.partition import Partition, SpecialToken
from octavo.tokenizers.gguf.pretokenizers import PRE_TOKENIZERS, DigitGroups
from octavo.tokenizers.gguf.unigram import Charsmap
from octavo.tokenizers.pieces import byte_alphabet

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = byte_alphabet()


def load(tmp_path: Path, name: str = "test", **metadata: Value) -> Tokenizer:
    return load_tokenizer(write_gguf(tmp_path / "vocabulary.gguf", metadata, name=name))


def byte_level(tmp_path: Path, name: str = "test", **metadata: Value) -> Tokenizer:
    tokens = [*ALPHABET, "he", "hel", "Ġw", "<|a|>", "<|ab|>", "<|user|>", "<|im_end|>"]
    kinds = [1] * (len(tokens) - 4) + [3, 3, 4, 1]
    known: dict[str, Value] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": kinds,
        "merges": ["h e", "he l", "Ġ w"],
        "bos_token_id": 259,
        "eos_token_id": 260,
    }
    return load(tmp_path, name, **{**known, **metadata})


def test_byte_level(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    ids = tokenizer.encode("hello w")
    assert [tokenizer.token_text(i) for i in ids] == ["hel", "l", "o", " w"]
    assert tokenizer.decode(ids) == "hello w"


def test_bos_and_eos_as_the_file_says(tmp_path: Path) -> None:
    assert byte_level(tmp_path).encode("h") == [104]
    both = byte_level(tmp_path, add_bos_token=True, add_eos_token=True)
    assert both.encode("h") == [259, 104, 260]
    assert both.encode("") == [259, 260]
    assert both.encode("h", add_special_tokens=False) == [104]
    assert (both.info.add_bos, both.info.add_eos) == (True, True)


def test_a_rule_that_adds_bos_yields_to_the_file(tmp_path: Path) -> None:
    assert byte_level(tmp_path, pre="llama-bpe").info.add_bos
    assert not byte_level(tmp_path, pre="llama-bpe", add_bos_token=False).info.add_bos


def test_user_defined_tokens_are_read_even_where_control_tokens_are_letters(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    assert 261 in tokenizer.encode("h<|user|>h", parse_special=False)
    assert 259 not in tokenizer.encode("h<|a|>h", parse_special=False)
    assert tokenizer.decode([259, 261]) == "<|user|>"


def test_end_of_answer_is_known_by_its_spelling(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    assert tokenizer.eos_token_ids == (260, 262)
    assert 262 in tokenizer.special_ids


@pytest.mark.parametrize(("kind", "ends"), [(3, True), (4, False), (1, False)])
def test_the_end_of_a_tag_ends_an_answer_only_as_a_control_token(
    tmp_path: Path, kind: int, ends: bool
) -> None:
    tokenizer = byte_level(
        tmp_path, tokens=[*ALPHABET, "he", "hel", "Ġw", "</s>"], token_type=[1] * 259 + [kind]
    )
    assert (259 in tokenizer.eos_token_ids) == ends
    assert (259 in tokenizer.special_ids) == ends


def test_words_that_are_tokens_need_no_merges(tmp_path: Path) -> None:
    tokens = [*ALPHABET, "he", "llo", "hello"]
    known: dict[str, Value] = {"model": "gpt2", "tokens": tokens, "merges": ["h e"], "add_bos_token": False}
    assert load(tmp_path, pre="llama-bpe", **known).encode("hello") == [258]
    assert load(tmp_path, pre="qwen2", **known).encode("hello") == [256, 108, 108, 111]


def test_marked_byte_pairs(tmp_path: Path) -> None:
    tokens = ["<pad>", "<eos>", "<bos>", *BYTES, "▁", "a", "b", "▁a", "▁ab", "\n", "\n\n"]
    tokenizer = load(
        tmp_path,
        model="gemma4",
        tokens=tokens,
        token_type=[3] * 3 + [6] * 256 + [1] * 7,
        merges=["▁ a", "▁a b", "\n \n"],
        bos_token_id=2,
        eos_token_id=1,
    )
    ids = tokenizer.encode("ab ab\n\n\n é")
    assert [tokenizer.token_text(i) for i in ids[1:]] == [
        "a",
        "b",
        " ab",
        "\n\n",
        "\n",
        " ",
        "\ufffd",
        "\ufffd",
    ]
    assert ids[0] == 2
    assert tokenizer.decode(ids) == "ab ab\n\n\n é"


def test_wordpiece(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁play", "ing", "▁i", "▁'", "▁m", "▁.", "▁cafe"]
    tokenizer = load(
        tmp_path,
        model="bert",
        tokens=tokens,
        token_type=[3] * 5 + [1] * 7,
        unknown_token_id=1,
        cls_token_id=2,
        seperator_token_id=3,
        padding_token_id=0,
        mask_token_id=4,
    )
    ids = tokenizer.encode("Playing café. zzz [MASK]")
    assert ids == [2, 5, 6, 11, 10, 1, 4, 3]
    assert tokenizer.decode(ids[:5]) == "playing cafe ."


def test_longest_match(tmp_path: Path) -> None:
    tokens = ["<s>", "a", "ab", "\\n", "\\xe6\\x97", "\\\\"]
    tokenizer = load(tmp_path, model="rwkv", tokens=tokens, token_type=[3, 1, 1, 1, 1, 1])
    assert tokenizer.encode("aba\n\\z") == [2, 1, 3, 5]
    assert tokenizer.token_bytes(4) == b"\xe6\x97"


def test_unescape() -> None:
    assert unescape(r"a\tb\\n\x00\"é") == b'a\tb\\n\x00"\xc3\xa9'


def test_cheapest_split(tmp_path: Path) -> None:
    tokens = ["<u>", "<b>", "<e>", "<p>", *BYTES, "a", "b", "ab", "bc", "c"]
    tokenizer = load(
        tmp_path,
        model="plamo2",
        tokens=tokens,
        token_type=[2, 3, 3, 3] + [6] * 256 + [1] * 5,
        scores=[0.0] * 260 + [-1.0, -5.0, -2.0, -0.5, -9.0],
    )
    assert [tokenizer.token_text(i) for i in tokenizer.encode("abcé")] == ["a", "bc", "\ufffd", "\ufffd"]
    assert tokenizer.decode(tokenizer.encode("abcé")) == "abcé"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"pre": "martian"}, "names the pre-tokenizer 'martian', which is not known"),
        ({"pre": ""}, "names no pre-tokenizer"),
    ],
)
def test_an_unknown_pre_tokenizer_is_refused(
    tmp_path: Path, metadata: dict[str, Value], message: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        byte_level(tmp_path, **metadata)


def test_an_unknown_kind_of_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="The tokenizer 'martian'"):
        byte_level(tmp_path, model="martian")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"tokens": ["a", "b", "a"], "token_type": [1, 1, 1]}, "holds the token 'a' twice"),
        ({"token_type": [1, 1]}, "has 2 elements for 263 tokens"),
        ({"token_type": ["x"]}, "must be an array of numbers"),
        ({"merges": ["h zz"]}, "merges does not fit the vocabulary"),
        ({"merges": 5}, "merges' must be an array of str"),
        ({"add_bos_token": 1}, "add_bos_token' must be a bool"),
        ({"bos_token_id": 10**6, "add_bos_token": True}, "bos_token_id is missing"),
    ],
)
def test_damaged_metadata_is_refused(tmp_path: Path, metadata: dict[str, Value], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        byte_level(tmp_path, **metadata)


def test_scores_are_needed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.scores' is missing"):
        load(tmp_path, model="llama", tokens=["<unk>", "a"], token_type=[2, 1])


def test_chat_templates_by_name(tmp_path: Path) -> None:
    tokenizer = byte_level(
        tmp_path,
        **{
            "tokenizer.chat_template": "D",
            "tokenizer.chat_templates": ["tool_use"],
            "tokenizer.chat_template.tool_use": "T",
        },
    )
    assert tokenizer.chat_template == "D"
    assert tokenizer.chat_templates == {"default": "D", "tool_use": "T"}


def test_a_template_that_writes_bos_has_it_once(tmp_path: Path) -> None:
    template: dict[str, Value] = {"tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}"}
    tokenizer = byte_level(tmp_path, add_bos_token=True, **template)
    messages = [{"role": "user", "content": "hel"}]
    text = render_chat(str(tokenizer.chat_template), messages, special_tokens=tokenizer.special_tokens)
    assert tokenizer.encode(text, add_special_tokens=False) == tokenizer.encode("hel") == [259, 257]


def test_special_tokens_go_by_length_then_from_left_to_right() -> None:
    partition = Partition([SpecialToken(1, "<a>"), SpecialToken(2, "<a><b>"), SpecialToken(3, "b><a")])
    assert partition.split("x<a><b><a>") == ["x", 2, 1]
    assert partition.split("<b><a>") == ["<", 3, ">"]
    assert partition.split("") == []
    assert Partition([]).split("x") == ["x"]


def test_special_tokens_that_take_white_space() -> None:
    right = Partition([SpecialToken(1, "<e>", strip_right=True)])
    assert right.split(" a <e> \n b<e>  ") == [" a ", 1, "b", 1]
    left = Partition([SpecialToken(1, "<m>", strip_left=True)])
    assert left.split(" a \t<m> b") == [" a", 1, " b"]


def test_phi3_takes_white_space_after_its_tokens(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, name="Phi-3 mini")
    assert tokenizer.encode("<|a|>\n h") == [259, 104]


def test_every_pre_tokenizer_can_be_made() -> None:
    for rule in PRE_TOKENIZERS.values():
        words = rule.rust().pre_tokenize_str("Ab c1234 don't\n\n  日本!")
        assert "".join(word for word, _ in words)
    assert len(PRE_TOKENIZERS) == 91


@pytest.mark.parametrize("pattern", [r"\p{N}+", r"(?<!\d)\d++\b"])
def test_digits_are_grouped_as_the_pattern_with_lookahead_does(pattern: str) -> None:
    slow = r"\d{1,3}(?=(?:\d{3})*\b)"
    for text in ("1234567", "a 12 b", "x1234 56789", "", "no", "1", "123", "1234."):
        splitter = pre_tokenizers.Split(Regex(slow), "isolated")
        assert DigitGroups(pattern).split(text) == [word for word, _ in splitter.pre_tokenize_str(text)]


def test_digits_before_letters_stay_whole_where_the_pattern_wants_a_border() -> None:
    assert DigitGroups(r"(?<!\d)\d++\b").split("1234ab 1234") == ["1234ab ", "1", "234"]


def test_a_long_run_of_digits_takes_linear_time(tmp_path: Path) -> None:
    text = "1" * 100_001
    assert len(DigitGroups(r"(?<!\d)\d++\b").split(text)) == 33_334


SMALL_FILES: dict[str, dict[str, Value]] = {
    "gpt2": {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*ALPHABET, "he", "<|im_end|>"],
        "token_type": [1] * 257 + [3],
        "merges": ["h e"],
        "eos_token_id": 257,
    },
    "llama": {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", *BYTES, "▁", "a", "▁a"],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * 3,
        "scores": [0.0] * 259 + [-1.0, -2.0, -3.0],
    },
    "t5": {
        "model": "t5",
        "tokens": ["<pad>", "</s>", "<unk>", "▁", "a", "▁a"],
        "token_type": [3, 3, 2, 1, 1, 1],
        "scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0],
        "precompiled_charsmap": [8, 0, 0, 0, *b"\x00\x04\x00\x00\x61\x01\x00\x00", *b"b\x00c\x00"],
    },
    "bert": {
        "model": "bert",
        "tokens": ["[UNK]", "[CLS]", "[SEP]", "▁a", "b"],
        "token_type": [3, 3, 3, 1, 1],
        "unknown_token_id": 0,
        "cls_token_id": 1,
        "seperator_token_id": 2,
    },
    "rwkv": {"model": "rwkv", "tokens": ["<s>", "a", "\\x00"], "token_type": [3, 1, 1]},
}


@pytest.mark.parametrize("kind", SMALL_FILES)
def test_flipped_bits_are_a_clean_error_or_no_harm(tmp_path: Path, kind: str) -> None:
    path = write_gguf(tmp_path / "vocabulary.gguf", SMALL_FILES[kind])
    whole = bytearray(path.read_bytes())
    rng = random.Random(kind)
    for _ in range(150):
        at, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
        whole[at] ^= bit
        path.write_bytes(whole)
        with contextlib.suppress(OctavoError):  # nothing but an error of our own may come out
            tokenizer = load_tokenizer(path)
            ids = tokenizer.encode("a hello ab </s>\x00é")
            tokenizer.decode(ids, skip_special_tokens=False)
        whole[at] ^= bit


@pytest.mark.parametrize("blob", [b"\x01", b"\x08\0\0\0abcd", b"\x04\0\0\0abcd", b"\x04\0\0\0abcdx"])
def test_a_damaged_normalisation_map_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        Charsmap(blob)
