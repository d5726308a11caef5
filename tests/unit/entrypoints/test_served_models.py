"""Several models on one command line, or in a YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.entrypoints.cli import openai as openai_command
from octavo.entrypoints.cli import serve
from octavo.entrypoints.cli.main import COMMANDS, main
from octavo.entrypoints.openai.served_models import ServedModel, check_names, served_models
from octavo.lib.errors import ConfigError


def read(tmp_path: Path, text: str, **shared: object) -> list[ServedModel]:
    file = tmp_path / "models.yaml"
    file.write_text(text)
    return served_models([], str(file), shared)


def test_without_a_model_the_embedded_one_is_served() -> None:
    assert [one.engine.model for one in served_models([], None, {"max_num_seqs": 8})] == [None]


def test_models_share_the_flags_and_have_a_name_each() -> None:
    one, two = served_models(["x", "y"], None, {"max_num_seqs": 8, "served_model_name": ["a", "b"]})
    assert (one.engine.model, one.engine.served_model_name) == ("x", ("a",))
    assert (two.engine.model, two.engine.served_model_name, two.engine.max_num_seqs) == ("y", ("b",), 8)


def test_as_many_names_as_models() -> None:
    with pytest.raises(ConfigError, match="each of the 2 models, got 1"):
        served_models(["x", "y"], None, {"served_model_name": ["a"]})


def test_two_models_of_one_name_are_refused() -> None:
    check_names(["a", "b"])
    with pytest.raises(ConfigError, match="served as 'a'"):
        check_names(["a", "b", "a"])


def test_a_file_says_what_differs_for_each_model(tmp_path: Path) -> None:
    text = """
    models:
      - model: chat.gguf
        served-model-name: [chat, assistant]
        max_model_len: 8K
        enforce_eager: true
        enable_prefix_caching: false
        tool_call_parser: hermes
      - model: embedder
        runner: pooling
        pooler_config: {pooling_type: MEAN}
        gpu_memory_utilization: 0.3
        max_num_seqs: null
    """
    chat, embedder = read(tmp_path, text, max_num_seqs=4, enforce_eager=False)
    assert (chat.engine.model, chat.engine.served_model_name) == ("chat.gguf", ["chat", "assistant"])
    assert (chat.engine.max_model_len, chat.engine.max_num_seqs, chat.engine.enforce_eager) == (8192, 4, True)
    assert (chat.engine.enable_prefix_caching, dict(chat.server)) == (False, {"tool_call_parser": "hermes"})
    assert (embedder.engine.runner, embedder.engine.memory_utilization) == ("pooling", 0.3)
    assert (embedder.engine.pooler_config, embedder.engine.max_num_seqs) == ('{"pooling_type": "MEAN"}', 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [", "is not YAML"),
        ("- model: x", "one key, `models`"),
        ("models: []", "1 to 64 entries"),
        ("models: [x]", r"models\[0\] of --models-file must be a mapping"),
        ("models: [{model: x}, {modle: x}]", r"models\[1\].*no setting 'modle'"),
        ("models: [{model: x, max_num_seqs: many}]", "max-num-seqs"),
        ("models: [{model: x, enforce_eager: 3}]", "enforce-eager"),
        ("models: [{model: x, runner: walking}]", "runner.*invalid choice"),
        ("models: [{model: x, port: 80}]", "no setting 'port'"),
        ("models: [{model: !!python/object:os.system x}]", "is not YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_file_and_models_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not with both"):
        served_models(["x"], "models.yaml", {})
    with pytest.raises(ConfigError, match="No such file"):
        served_models([], str(tmp_path / "none.yaml"), {})


def test_openai_is_serve_without_a_positional_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert openai_command.run is serve.run
    assert "openai" in COMMANDS
    with pytest.raises(SystemExit):
        main(["openai", "model.gguf"])
    assert "unrecognized arguments: model.gguf" in capsys.readouterr().err
    assert main(["openai", "--model", "/nowhere", "--model", "/elsewhere", "--port", "0"]) == 1
