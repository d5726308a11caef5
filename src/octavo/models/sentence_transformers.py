"""The module files that Sentence Transformers writes beside a model, read strictly: what is not known here is an error.

Formats: sentence-transformers 2.x to 5.3 (`pooling_mode_*` flags, `sentence_transformers.models.*` types) and 5.4 on
(`pooling_mode`, `sentence_transformers.base.modules.*`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octavo.config import DenseConfig
from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.models.config_values import ConfigValues, read_json

MODULES = "modules.json"
_TRANSFORMER_SETTINGS = "sentence_bert_config.json"
_FLAGS = {
    "pooling_mode_cls_token": "CLS",
    "pooling_mode_mean_tokens": "MEAN",
    "pooling_mode_lasttoken": "LAST",
    "pooling_mode_max_tokens": "",
    "pooling_mode_mean_sqrt_len_tokens": "",
    "pooling_mode_weightedmean_tokens": "",
}
_NAMES = {"cls": "CLS", "mean": "MEAN", "lasttoken": "LAST"}
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
}


@dataclass(frozen=True, kw_only=True)
class SentenceModules:
    """What comes after the transformer."""

    pooling_type: str
    normalize: bool
    dense: tuple[DenseConfig, ...]
    max_seq_length: int | None
    """Tokens after which the trained model cut its inputs; None: not stated."""


def read_modules(folder: Path) -> SentenceModules | None:
    """The modules of a checkpoint folder; None where there are none.

    Raises:
        UnsupportedModelError: a module or a setting that is not known here; names the file and what it is.
        CheckpointError: a file is missing or damaged.
    """
    path = folder / MODULES
    if not path.is_file():
        return None
    kinds = [_kind(entry, path) for entry in _entries(path)]
    order = [kind for kind, _ in kinds]
    dense = [place for kind, place in kinds if kind == "Dense"]
    if order not in (
        ["Transformer", "Pooling", *["Dense"] * len(dense), *end] for end in ([], ["Normalize"])
    ):
        raise UnsupportedModelError(
            f"lists {', '.join(order)}; Transformer, Pooling, any Dense and Normalize in this order are supported",
            file=str(path),
        )
    return SentenceModules(
        pooling_type=_pooling(folder / kinds[1][1]),
        normalize=order[-1] == "Normalize",
        dense=tuple(_dense(folder / place) for place in dense),
        max_seq_length=_max_seq_length(folder / kinds[0][1]),
    )


def _entries(path: Path) -> list[ConfigValues]:
    found = read_json(path)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise CheckpointError("must hold a list of modules", file=str(path))
    return [ConfigValues(entry, str(path), f"[{index}].") for index, entry in enumerate(found)]


def _kind(entry: ConfigValues, path: Path) -> tuple[str, str]:
    """(class name, folder) of one module."""
    name, place = entry.str("type"), entry.str("path", "")
    package, _, kind = name.rpartition(".")
    if not package.startswith("sentence_transformers.") or kind not in (
        "Transformer",
        "Pooling",
        "Dense",
        "Normalize",
    ):
        raise entry.unsupported(
            "type",
            f"is {name!r}; Transformer, Pooling, Dense and Normalize of Sentence Transformers are supported",
        )
    if Path(place).is_absolute() or ".." in Path(place).parts:
        raise entry.error("path", f"is {place!r}, which leaves the model's folder")
    return kind, place


def _pooling(folder: Path) -> str:
    settings = _settings(folder / "config.json")
    settings.get("word_embedding_dimension")
    settings.get("embedding_dimension")
    settings.expect("include_prompt", True)
    flags = [flag for flag in _FLAGS if settings.bool(flag, False)]
    name = settings.str("pooling_mode", None)
    chosen = [*flags, *([name] if name else [])]
    _refuse_unread(settings)
    if len(chosen) != 1:
        raise settings.unsupported("pooling_mode", f"must be one of cls, mean and lasttoken, but is {chosen}")
    found = _NAMES.get(name, "") if name else _FLAGS[chosen[0]]
    if not found:
        raise settings.unsupported(
            "pooling_mode" if name else chosen[0],
            f"is {name or True!r}; cls, mean and lasttoken are supported",
        )
    return found


def _dense(folder: Path) -> DenseConfig:
    settings = _settings(folder / "config.json")
    activation = settings.str("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in _ACTIVATIONS:
        raise settings.unsupported(
            "activation_function", f"is {activation!r}; {', '.join(_ACTIVATIONS)} are supported"
        )
    for name in ("module_input_name", "module_output_name"):
        settings.expect(name, "sentence_embedding")
    found = DenseConfig(
        folder=str(folder),
        in_features=settings.int("in_features"),
        out_features=settings.int("out_features"),
        bias=settings.bool("bias", True),
        activation=_ACTIVATIONS[activation],
    )
    _refuse_unread(settings)
    return found


def _max_seq_length(folder: Path) -> int | None:
    path = folder / _TRANSFORMER_SETTINGS
    if not path.is_file():
        return None
    settings = _settings(path)
    settings.expect("do_lower_case", False)
    settings.expect("transformer_task", "feature-extraction")
    return settings.int("max_seq_length", None)


def _refuse_unread(settings: ConfigValues) -> None:
    """Refuse what nobody has read."""
    unread = settings.unread(frozenset())
    if unread:
        raise UnsupportedModelError(
            f"these settings are not known: {', '.join(sorted(unread))}", file=settings.origin
        )


def _settings(path: Path) -> ConfigValues:
    found = read_json(path)
    if not isinstance(found, dict):
        raise CheckpointError("must hold a JSON object", file=str(path))
    return ConfigValues(found, str(path))
