"""The 70 chat templates that llama.cpp ships, on five conversations: byte for byte as transformers renders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers.chat import render_chat
from octavo.tokenizers.chat_format import content_format
from tests.tokenizers.goldens import models_folder

pytestmark = pytest.mark.slow

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Weather <now> & "later" – für alle',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Town"},
                    "days": {"type": "integer", "enum": [1, 2, 3]},
                    "where": {"type": ["string", "null"]},
                },
                "required": ["city"],
            },
        },
    }
]
CALL = {
    "id": "call_ab12",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}},
}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "plain": [{"role": "user", "content": "Hi there"}],
    "system": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi"}],
    "several turns": [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because.", "reasoning_content": "It is so."},
        {"role": "user", "content": "More"},
    ],
    "tools": [
        {"role": "user", "content": "Weather in Zürich?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_ab12", "name": "get_weather", "content": '{"temp": 21}'},
        {"role": "user", "content": "Thanks"},
    ],
    "odd text": [
        {"role": "user", "content": "  \n日本🙂é <b>&\"' \t {{ x }} {% y %}\r\n <s></s>"},
        {"role": "assistant", "content": " ok\n"},
        {"role": "user", "content": "e\u0301 \u00a0 end  "},
    ],
}


def templates() -> list[Path]:
    return sorted((models_folder() / "templates").glob("*.jinja"))


def reference(template: str, messages: list[dict[str, Any]], **kwargs: Any) -> str | Exception:
    from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

    try:
        rendered, _ = render_jinja_template(
            [_normalize_chat_messages(messages)], chat_template=template, **kwargs, **SPECIAL_TOKENS
        )
    except Exception as e:  # a template may fail in any way
        return e
    return str(rendered[0])


def test_there_are_70_templates() -> None:
    assert len(templates()) == 70


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_it_equals_transformers(name: str, add_generation_prompt: bool) -> None:
    messages = CONVERSATIONS[name]
    options: dict[str, Any] = {"add_generation_prompt": add_generation_prompt}
    options["tools"] = TOOLS if name == "tools" else None
    rendered = 0
    for path in templates():
        template = path.read_text(encoding="utf-8")
        expected = reference(template, messages, **options)
        if isinstance(expected, Exception):
            with pytest.raises(InvalidRequestError) as caught:
                render_chat(template, messages, special_tokens=SPECIAL_TOKENS, **options)
            assert str(expected) in caught.value.message, path.name
        else:
            assert render_chat(template, messages, special_tokens=SPECIAL_TOKENS, **options) == expected, (
                path.name
            )
            rendered += 1
    assert rendered > 50


@pytest.mark.parametrize("name", ["several turns", "odd text"])
def test_continuing_equals_transformers(name: str) -> None:
    messages = [*CONVERSATIONS[name], {"role": "assistant", "content": "It is  "}]
    continued = 0
    for path in templates():
        template = path.read_text(encoding="utf-8")
        expected = reference(template, messages, continue_final_message=True)
        if isinstance(expected, Exception):
            with pytest.raises(InvalidRequestError):
                render_chat(template, messages, special_tokens=SPECIAL_TOKENS, continue_final_message=True)
        else:
            got = render_chat(template, messages, special_tokens=SPECIAL_TOKENS, continue_final_message=True)
            assert got == expected, path.name
            continued += 1
    assert continued > 40


def test_what_they_take_as_content() -> None:
    formats = {path.stem: content_format(path.read_text(encoding="utf-8")) for path in templates()}
    assert formats["google-gemma-2-2b-it"] == "string"
    assert formats["meta-llama-Llama-3.1-8B-Instruct"] == "string"
    assert formats["Mistral-Small-3.2-24B-Instruct-2506"] == "parts"
    assert formats["moonshotai-Kimi-K2"] in ("parts", "parts_only")
