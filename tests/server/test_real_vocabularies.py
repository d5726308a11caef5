"""Real vocabularies before a model that says exactly what it is told (cases A09, A16, A18, A28, A36, A38, A80)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.assets import smollm2_gguf
from tests.server.harness import Server, both, events, finish, joined, running
from tests.tokenizers.sentencepiece_files import merged_by_score
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as RustTokenizer

from octavo.tokenizers import Tokenizer, load_tokenizer
from octavo.tokenizers.pieces import byte_alphabet

BOS_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SPACED = "Hello.  World it's  2 + 2"
WIDE = "今天 é 日本🙂 ok"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    return load_tokenizer(smollm2_gguf())


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    return merged_by_score(path, **{"tokenizer.chat_template": BOS_TEMPLATE})[1]


@pytest.fixture(scope="module")
def spaced(sentencepiece: Tokenizer) -> Iterator[Server]:
    """Says `SPACED` in SentencePiece's tokens."""
    with running(script=answer_ids(sentencepiece, SPACED), tokenizer=sentencepiece) as server:
        yield server


@pytest.fixture(scope="module")
def wide(byte_level: Tokenizer) -> Iterator[Server]:
    """Says `WIDE` in byte-level tokens, several of which are parts of one character."""
    with running(script=answer_ids(byte_level, WIDE), tokenizer=byte_level) as server:
        yield server


def answer_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)


def chat_text(whole: dict[str, Any]) -> str:
    return str(whole["choices"][0]["message"]["content"])


def chat(max_tokens: int, **fields: Any) -> dict[str, Any]:
    return {"messages": HI, "temperature": 0, "max_tokens": max_tokens} | fields


def test_a36_spaces_are_neither_lost_nor_added(spaced: Server, sentencepiece: Tokenizer) -> None:
    ids = answer_ids(sentencepiece, SPACED)
    whole, chunks = both(spaced, "/v1/chat/completions", chat(len(ids), return_token_ids=True))
    assert whole["choices"][0]["token_ids"] == ids
    assert chat_text(whole) == joined(chunks)
    assert chat_text(whole).lstrip(" ") == SPACED == sentencepiece.decode(ids)
    assert sum(bool(choice["delta"].get("content")) for chunk in chunks for choice in chunk["choices"]) > 1


def test_a16_parts_of_characters_are_never_shown(wide: Server, byte_level: Tokenizer) -> None:
    ids = answer_ids(byte_level, WIDE)
    assert any("\ufffd" in byte_level.token_text(token) for token in ids)  # or this would test nothing
    whole, chunks = both(wide, "/v1/chat/completions", chat(len(ids)))
    assert chat_text(whole) == joined(chunks) == WIDE
    assert "\ufffd" not in json.dumps(chunks, ensure_ascii=False)


def test_a16_an_answer_cut_anywhere_is_the_same_in_both_modes(wide: Server, byte_level: Tokenizer) -> None:
    ids = answer_ids(byte_level, WIDE)
    for count in range(1, len(ids) + 1):
        whole, chunks = both(wide, "/v1/chat/completions", chat(count))
        assert chat_text(whole) == joined(chunks) == byte_level.decode(ids[:count])
        assert finish(chunks) == [whole["choices"][0]["finish_reason"]] == ["length"]


def test_a18_logprob_tokens_are_plain_text(wide: Server, byte_level: Tokenizer) -> None:
    ids = answer_ids(byte_level, WIDE)
    whole, chunks = both(wide, "/v1/chat/completions", chat(len(ids), logprobs=True, top_logprobs=2))
    content = whole["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == WIDE
    for entry in [one for position in content for one in (position, *position["top_logprobs"])]:
        assert entry["token"] == bytes(entry["bytes"]).decode("utf-8", "replace")
        assert not {"Ġ", "Ċ", "ä", "Ã"} & set(entry["token"])
    assert " ok" in [entry["token"] for entry in content]
    streamed = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert [entry for piece in streamed for entry in piece["content"]] == content


@pytest.mark.parametrize("prompt", ["\n1. Carol has 20", "今天🙂", "  two  spaces"])
@pytest.mark.parametrize("kind", ["spaced", "wide"])
def test_a09_echoed_tokens_join_to_the_text(kind: str, prompt: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(kind)
    body = {"prompt": prompt, "echo": True, "logprobs": 1, "temperature": 0}
    for count in (0, 1, 3, 5, 6, 7):
        whole, chunks = both(server, "/v1/completions", body | {"max_tokens": count})
        text, columns = whole["choices"][0]["text"], whole["choices"][0]["logprobs"]
        assert text == joined(chunks)
        assert text.startswith(prompt)
        assert "".join(columns["tokens"]) == text
        lengths = [len(token) for token in columns["tokens"]]
        assert columns["text_offset"] == [sum(lengths[:i]) for i in range(len(lengths))]
        pieces = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
        assert {name: [item for piece in pieces for item in piece[name]] for name in columns} == columns


def test_a09_a_prompt_that_ends_within_a_character(wide: Server, byte_level: Tokenizer) -> None:
    """The answer completes it; the echo must not show the half twice."""
    prompt = answer_ids(byte_level, "a" + WIDE)
    cut = next(i for i, token in enumerate(prompt) if "\ufffd" in byte_level.token_text(token)) + 1
    with running(script=prompt[cut:], tokenizer=byte_level) as server:
        body = {"prompt": prompt[:cut], "echo": True, "temperature": 0, "logprobs": 0}
        whole, chunks = both(server, "/v1/completions", body | {"max_tokens": len(prompt) - cut})
        assert whole["choices"][0]["text"] == joined(chunks) == "a" + WIDE
        assert "".join(whole["choices"][0]["logprobs"]["tokens"]) == "a" + WIDE
        alone, pieces = both(server, "/v1/completions", body | {"max_tokens": 0})
        assert alone["choices"][0]["text"] == joined(pieces) == byte_level.decode(prompt[:cut])


def test_an_echo_alone_ends_the_same_whatever_the_dropped_token_is(byte_level: Tokenizer) -> None:
    with running(script=[byte_level.eos_token_id or 0], tokenizer=byte_level) as server:
        body = {"prompt": "abc", "echo": True, "max_tokens": 0, "return_token_ids": True}
        whole, chunks = both(server, "/v1/completions", body)
        assert [whole["choices"][0]["finish_reason"]] == finish(chunks) == ["length"]
        assert whole["choices"][0]["token_ids"] == []
        assert [i for chunk in chunks for c in chunk["choices"] for i in c["token_ids"]] == []


@pytest.mark.parametrize("skip", [True, False])
def test_a38_special_tokens_show_or_not_in_both_modes(byte_level: Tokenizer, skip: bool) -> None:
    end = byte_level.encode("<|im_end|>")
    script = [*answer_ids(byte_level, "one"), *end, *answer_ids(byte_level, " two"), *end]
    with running(script=script, tokenizer=byte_level) as server:
        fields = {"ignore_eos": True, "skip_special_tokens": skip, "return_token_ids": True}
        whole, chunks = both(server, "/v1/chat/completions", chat(len(script), **fields))
        assert whole["choices"][0]["token_ids"] == script
        expected = "one two" if skip else "one<|im_end|> two<|im_end|>"
        assert chat_text(whole) == joined(chunks) == expected


def test_a28_a_template_that_writes_bos_gives_one_from_gguf(spaced: Server, sentencepiece: Tokenizer) -> None:
    assert sentencepiece.info.add_bos
    check_one_bos(spaced, sentencepiece)
    assert spaced.post("/tokenize", {"prompt": "hi"}).json()["tokens"][0] == sentencepiece.bos_token_id


def test_a28_a_template_that_writes_bos_gives_one_as_transformers(tmp_path: Path) -> None:
    folder = write_hf(tmp_path)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.info.add_bos
    from transformers import PreTrainedTokenizerFast

    reference = PreTrainedTokenizerFast.from_pretrained(folder)
    with running(tokenizer=tokenizer) as server:
        ids = check_one_bos(server, tokenizer)
    assert ids == list(reference.apply_chat_template(HI, add_generation_prompt=True)["input_ids"])


def check_one_bos(server: Server, tokenizer: Tokenizer) -> list[int]:
    """The prompt of a chat, which must begin with the only BOS; `/tokenize` must say the same."""
    answer = server.post("/v1/chat/completions", chat(1, return_token_ids=True)).json()
    ids: list[int] = answer["prompt_token_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(ids[0]) == 1
    assert server.post("/tokenize", {"messages": HI}).json()["tokens"] == ids
    return ids


def write_hf(folder: Path) -> Path:
    """A checkpoint's tokenizer that puts BOS before a text, with a template that writes it too."""
    rust = RustTokenizer(models.BPE({text: i for i, text in enumerate(byte_alphabet())}, []))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", "</s>")])
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", rust.token_to_id("<s>"))]
    )
    rust.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": BOS_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a80_texts_come_back_from_the_server_as_they_went_in(wide: Server, byte_level: Tokenizer) -> None:
    for text in ("<|im_start|>user\nhi<|im_end|>", " two  spaces", "", WIDE):
        ids = wide.post("/tokenize", {"prompt": text}).json()["tokens"]
        assert ids == byte_level.encode(text)
        assert wide.post("/detokenize", {"tokens": ids}).json()["prompt"] == text
    assert len(byte_level.encode("<|im_start|><|im_end|>")) == 2


def test_a13_no_piece_of_a_stop_string_is_sent_whatever_the_tokens(
    spaced: Server, sentencepiece: Tokenizer
) -> None:
    ids = answer_ids(sentencepiece, SPACED)
    for stop in ("World", "ld it", "s  2", "+ 2", "."):
        whole, chunks = both(spaced, "/v1/chat/completions", chat(len(ids), stop=[stop]))
        assert chat_text(whole) == joined(chunks)
        assert chat_text(whole).lstrip(" ") == SPACED[: SPACED.index(stop)]
        assert finish(chunks) == ["stop"]


def test_events_end_with_done(spaced: Server) -> None:
    assert events(spaced.post("/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 2}).text)
