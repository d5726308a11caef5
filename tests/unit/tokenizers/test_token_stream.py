"""Incremental detokenisation: whole characters only, nothing lost, whatever the tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.tokenizers import Tokenizer, TokenizerInfo, TokenStream
from octavo.tokenizers.pieces import Pieces, without_leading_space

SPECIAL = 0
STEADY = settings(deadline=None, derandomize=True, database=None)


class NoEncoder:
    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        raise NotImplementedError


def make(texts: list[bytes], leading_space: bool = False) -> Tokenizer:
    """A tokenizer of given pieces, of which the first is a control token."""

    def spell(token_id: int) -> bytes:
        return texts[token_id] if token_id < len(texts) else b""

    pieces = Pieces(spell, without_leading_space(spell) if leading_space else None)
    info = TokenizerInfo(vocab_size=len(texts), special_ids=frozenset({SPECIAL}))
    return Tokenizer(info, NoEncoder(), pieces)


WORDS = [b"<s>", b"", b" ", b"  ", b" Hello", b".", b" World", b" it", b"'", b"s", b" 2", b"+"]
BYTES = [
    bytes([byte])
    for byte in (0x41, 0x80, 0xBF, 0xC3, 0xA9, 0xE6, 0x97, 0xA5, 0xF0, 0x9F, 0x99, 0x82, 0xED, 0xFF)
]
PIECES = [*WORDS, *BYTES, "日本".encode(), "🙂".encode(), b"\xc3", b"\xa9 x\xf0\x9f"]
ONE_BYTE_TOKENS = make([b"<s>", *(bytes([byte]) for byte in range(256))])
ids_of_pieces = st.lists(st.integers(0, len(PIECES) - 1), max_size=30)


@STEADY
@given(ids=ids_of_pieces, size=st.integers(1, 9), skip=st.booleans(), leading_space=st.booleans())
def test_several_tokens_at_once_settle_what_single_ones_do(
    ids: list[int], size: int, skip: bool, leading_space: bool
) -> None:
    single, several = (TokenStream(make(PIECES, leading_space), skip_special_tokens=skip) for _ in range(2))
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        assert several.push_all(part) == "".join(map(single.push, part))
    assert several.finish() == single.finish()


@STEADY
@given(ids=ids_of_pieces, skip=st.booleans(), leading_space=st.booleans())
def test_deltas_joined_are_the_whole_decode(ids: list[int], skip: bool, leading_space: bool) -> None:
    tokenizer = make(PIECES, leading_space)
    stream = TokenStream(tokenizer, skip_special_tokens=skip)
    deltas = [stream.push(token_id) for token_id in ids]
    assert "".join(deltas) + stream.finish() == tokenizer.decode(ids, skip_special_tokens=skip)


@STEADY
@given(prompt=ids_of_pieces, ids=ids_of_pieces, skip=st.booleans(), leading_space=st.booleans())
def test_after_a_prompt_the_stream_is_what_the_answer_adds(
    prompt: list[int], ids: list[int], skip: bool, leading_space: bool
) -> None:
    tokenizer = make(PIECES, leading_space)
    stream = TokenStream(tokenizer, prompt, skip_special_tokens=skip)
    text = stream.push_all(ids) + stream.finish()
    kept = [token_id for token_id in prompt if not (skip and token_id == SPECIAL)]
    whole = tokenizer.decode([*prompt, *ids], skip_special_tokens=skip)
    # What the prompt alone settles: an unfinished character at its end belongs to the answer.
    settled = TokenStream(tokenizer, skip_special_tokens=False).push_all(kept)
    assert settled + text == whole


@STEADY
@given(text=st.text(max_size=40))
def test_a_character_is_never_split(text: str) -> None:
    stream = TokenStream(ONE_BYTE_TOKENS)
    data = text.encode("utf-8", "replace")
    for at, byte in enumerate(data):
        stream_text = stream.push(byte + 1)
        assert "\ufffd" not in stream_text or b"\xef\xbf\xbd" in data
        assert stream_text in ("", text[len(data[:at].decode("utf-8", "ignore"))])
    assert stream.finish() == ""


def test_an_unfinished_character_ends_as_in_a_whole_decode() -> None:
    tokenizer = make([b"<s>", b"ok \xf0\x9f", b"\x99"])
    stream = TokenStream(tokenizer)
    assert stream.push_all([1, 2]) == "ok "
    assert stream.finish() == "\ufffd" == tokenizer.decode([1, 2])[3:]


def test_spaces_are_neither_lost_nor_added() -> None:
    tokenizer = make(WORDS, leading_space=True)
    ids = [4, 5, 3, 6, 7, 8, 9, 3, 10, 2, 11, 10]
    stream = TokenStream(tokenizer)
    deltas = [stream.push(token_id) for token_id in ids]
    assert deltas[0] == "Hello"
    assert "".join(deltas) == tokenizer.decode(ids) == "Hello.   World it's   2 + 2"


def test_an_answer_keeps_its_leading_space_only_after_a_prompt() -> None:
    tokenizer = make(WORDS, leading_space=True)
    assert TokenStream(tokenizer).push(6) == "World"
    assert TokenStream(tokenizer, [4]).push(6) == " World"
    assert TokenStream(tokenizer, [SPECIAL]).push(6) == "World"
    assert TokenStream(tokenizer, [SPECIAL], skip_special_tokens=False).push(6) == " World"


@pytest.mark.parametrize("skip", [True, False])
def test_special_tokens(skip: bool) -> None:
    stream = TokenStream(make(WORDS), skip_special_tokens=skip)
    assert stream.push_all([4, SPECIAL, 6]) == (" Hello World" if skip else " Hello<s> World")


def test_an_id_without_a_token_has_no_text() -> None:
    assert TokenStream(make(WORDS)).push_all([4, 10**6, 6]) == " Hello World"
