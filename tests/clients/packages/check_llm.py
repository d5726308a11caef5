"""The `llm` command and library, with the server as one of its OpenAI-compatible models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import llm
import pytest

MODELS = """
- model_id: octavo
  model_name: {model}
  api_base: {base_url}
  api_key_name: octavo
  supports_schema: true
  supports_tools: true
- model_id: octavo-text
  model_name: {model}
  api_base: {base_url}
  api_key_name: octavo
  completion: true
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, base_url: str, api_key: str, model: str) -> Iterator[Path]:
    """A user's folder with the two models and the key, as `llm keys set` would leave it."""
    folder = tmp_path_factory.mktemp("llm")
    (folder / "extra-openai-models.yaml").write_text(MODELS.format(model=model, base_url=base_url))
    (folder / "keys.json").write_text(json.dumps({"octavo": api_key}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_USER_PATH", str(folder))
        yield folder


@pytest.fixture(scope="module")
def run(home: Path) -> Callable[..., str]:
    def call(*arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode == 0) == check, done.stderr
        return done.stdout if check else done.stderr

    return call


def test_a_prompt_from_the_command(run: Callable[..., str]) -> None:
    asked = (
        "-m",
        "octavo",
        "-o",
        "temperature",
        "0",
        "-o",
        "max_tokens",
        "24",
        "What is the capital of France?",
    )
    streamed = run(*asked)
    assert "Paris" in streamed
    assert run(*asked, "--no-stream") == streamed


def test_a_talk_goes_on(run: Callable[..., str]) -> None:
    run("-m", "octavo", "-o", "max_tokens", "16", "-s", "You are brief.", "Say hello.")
    run("-c", "-o", "max_tokens", "16", "And again.")
    logged = json.loads(run("logs", "--json", "-n", "2"))
    assert len({entry["conversation_id"] for entry in logged}) == 1
    assert all(entry["response"] and entry["input_tokens"] and entry["output_tokens"] for entry in logged)


def test_a_text_completion(run: Callable[..., str]) -> None:
    assert "Paris" in run(
        "-m", "octavo-text", "-o", "temperature", "0", "-o", "max_tokens", "8", "The capital of France is"
    )


def test_the_library_stream_and_whole(home: Path) -> None:
    model = llm.get_model("octavo")
    question = "What is the capital of France?"
    pieces = list(model.prompt(question, temperature=0, max_tokens=24))
    assert len(pieces) > 2
    assert "".join(pieces) == model.prompt(question, temperature=0, max_tokens=24, stream=False).text()


def test_an_error_is_told_in_the_servers_words(run: Callable[..., str]) -> None:
    assert "max_tokens" in run("-m", "octavo", "-o", "max_tokens", "999999", "hi", check=False)


SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def test_an_object_after_a_schema(run: Callable[..., str]) -> None:
    printed = run("-m", "octavo", "-o", "temperature", "0", "--schema", json.dumps(SCHEMA), "Where do we go?")
    found = json.loads(printed)
    assert found["city"] in ("Paris", "Rome")
    assert found["days"] in (1, 2, 3)


def test_tools_are_shown_and_what_they_returned_goes_back(run: Callable[..., str]) -> None:
    """Whether this model calls is its own matter (`llm` cannot force a call): the chain has to end with an answer."""
    code = "def add(a: int, b: int) -> int:\n    return a + b"
    asked = ("--functions", code, "-o", "temperature", "0", "-o", "max_tokens", "60", "What is 2 + 3?")
    run("-m", "octavo", *asked, "--chain-limit", "2")
    (entry, *_) = json.loads(run("logs", "--json", "-n", "1"))
    assert [tool["name"] for tool in entry["tools"]] == ["add"]
