"""What a person types after `octavo`: help that reads well, words in any order, slips that are answered with the fix."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from octavo.entrypoints.cli import run
from octavo.entrypoints.cli.client import base_url
from octavo.entrypoints.cli.main import main


def test_help_keeps_acronyms_and_shows_defaults_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0
    assert "Serve a model over HTTP (OpenAI API)." in shown
    assert "(CORS). Default: *." in shown
    assert "Default: ." not in shown


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--prot", "1"], "did you mean --port?"),
        (["--max-model-length=5"], "did you mean --max-model-len?"),
        (["--zzzzzz"], "--help"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest_known_one(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", *words])
    assert end.value.code == 2
    assert hint in capsys.readouterr().err


def test_flags_may_stand_between_model_and_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "./nothing-here", "--raw", "some words", "--max-tokens", "3"]) == 1
    assert "'./nothing-here' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "model", "prompt"),
    [
        (["What is it?"], None, "What is it?"),
        (["two", "words"], None, "two words"),
        (["x.gguf", "hi"], "x.gguf", "hi"),
        (["./absent", "hi"], "./absent", "hi"),
        (["/no/such/folder"], "/no/such/folder", None),
        (["/what is this?"], None, "/what is this?"),
        (["here", "hi"], "here", "hi"),
        ([""], None, ""),
        (["and/or", "what?"], None, "and/or what?"),
    ],
)
def test_model_and_prompt_are_told_apart(
    words: list[str], model: str | None, prompt: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    args = argparse.Namespace(words=words, model=None, raw=False)
    assert run._split_words(args) == prompt
    assert args.model == model


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("localhost:8000/api/v1", "http://localhost:8000/api/v1"),
        ("https://host/", "https://host/v1"),
    ],
)
def test_the_url_may_be_typed_short(typed: str, base: str) -> None:
    assert base_url(typed) == base
