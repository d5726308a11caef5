"""`GET /tokenizer_info`, where the operator asks for it."""

from __future__ import annotations

from tests.engine.fakes import BOS, EOS, VOCAB
from tests.server.harness import Server, running

from octavo.entrypoints.openai.args import ServerArgs


def test_facts_by_the_names_of_tokenizer_configs() -> None:
    template = "{{ messages[0].content }}"
    with running(
        server_args=ServerArgs(enable_tokenizer_info_endpoint=True, chat_template=template)
    ) as server:
        info = server.get("/tokenizer_info").json()
        assert (info["bos_token"], info["bos_token_id"]) == ("<bos>", BOS)
        assert (info["eos_token"], info["eos_token_id"]) == ("<eos>", EOS)
        assert (info["vocab_size"], info["model_max_length"], info["pad_token"]) == (VOCAB, 512, None)
        assert info["chat_template"] == template
        assert server.get("/tokenizer_info?model=gpt").status_code == 404


def test_it_must_be_asked_for(server: Server) -> None:
    assert server.get("/tokenizer_info").status_code == 404
