"""Which models one server offers, from `--model` (repeated) or from a YAML file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from octavo.engine.args import ENGINE_FIELDS, EngineArgs
from octavo.engine.flags import add_flags, synonyms
from octavo.entrypoints.openai.args import ServerArgs
from octavo.lib.errors import ConfigError

MAX_MODELS = 64
# Settings of the server that belong to one model.
SERVER_SETTINGS = frozenset(
    {
        "chat_template",
        "response_role",
        "enable_auto_tool_choice",
        "exclude_tools_when_tool_choice_none",
        "tool_call_parser",
        "reasoning_parser",
    }
)
_SYNONYMS = synonyms(EngineArgs)


@dataclass(frozen=True)
class ServedModel:
    """One model: the settings of its engine, and what of the server's own settings differs for it."""

    engine: EngineArgs
    server: Mapping[str, Any] = field(default_factory=dict)


def served_models(models: Sequence[str], file: str | None, shared: Mapping[str, Any]) -> list[ServedModel]:
    """The models of a command line.

    Args:
        models: Values of `--model`, in their order; none: the embedded model.
        file: Value of `--models-file`.
        shared: Fields of `EngineArgs` from all other flags: they hold for each model whose entry does not say otherwise.

    Raises:
        ConfigError: the two contradict each other, or the file is not as `docs/models.md` describes it.
    """
    if file is not None:
        if models:
            raise ConfigError(
                "Give models with --model or with --models-file, not with both.", param="models_file"
            )
        return [_of_entry(entry, place, shared) for place, entry in enumerate(_entries(file))]
    if len(models) < 2:
        return [ServedModel(EngineArgs(**shared, model=models[0] if models else None))]
    names = shared.get("served_model_name")
    if names and len(names) != len(models):
        raise ConfigError(
            f"--served-model-name must give one name to each of the {len(models)} models, got {len(names)}.",
            param="served_model_name",
        )
    each = [(name,) for name in names] if names else [None] * len(models)
    own = [
        dict(shared, model=model, served_model_name=name) for model, name in zip(models, each, strict=True)
    ]
    return [ServedModel(EngineArgs(**settings)) for settings in own]


def check_names(names: Sequence[str]) -> None:
    """Refuse two models under one name.

    Raises:
        ConfigError: names it.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"Two models would be served as {twice!r}; give them names with --served-model-name.",
            param="served_model_name",
        )


def _entries(file: str) -> list[Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--models-file {file!r}: {error.strerror}.", param="models_file") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"--models-file {file!r} is not YAML: {error}.", param="models_file") from error
    entries = content.get("models") if isinstance(content, dict) and set(content) == {"models"} else None
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_MODELS:
        raise ConfigError(
            f"--models-file {file!r} must have one key, `models`: a list of 1 to {MAX_MODELS} entries.",
            param="models_file",
        )
    return entries


def _of_entry(entry: Any, place: int, shared: Mapping[str, Any]) -> ServedModel:
    where = f"models[{place}] of --models-file"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must be a mapping of settings, got {entry!r}.", param="models_file")
    own = {_field(str(name)): value for name, value in entry.items() if value is not None}
    unknown = sorted(own.keys() - ENGINE_FIELDS - SERVER_SETTINGS)
    if unknown:
        raise ConfigError(f"{where}: there is no setting {unknown[0]!r}.", param="models_file")
    # Read as flags are, so that `8k` and choices mean the same in both places.
    parser = _EntryParser(where)
    EngineArgs.add_cli_args(parser)
    add_flags(parser, ServerArgs, only=SERVER_SETTINGS)
    parsed = vars(parser.parse_args([word for name, value in own.items() for word in _words(name, value)]))
    engine = {**shared, **{name: parsed[name] for name in own.keys() & ENGINE_FIELDS}}
    return ServedModel(EngineArgs(**engine), {name: parsed[name] for name in own.keys() & SERVER_SETTINGS})


class _EntryParser(argparse.ArgumentParser):
    """Raises what a parser of a command line would end the program with."""

    def __init__(self, where: str) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self._where = where

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self._where}: {message}.", param="models_file")


def _words(name: str, value: Any) -> list[str]:
    """A setting as it would stand on a command line."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [f"{flag}={json.dumps(value) if isinstance(value, dict) else value}"]


def _field(name: str) -> str:
    plain = name.replace("-", "_")
    return _SYNONYMS.get(plain, plain)
