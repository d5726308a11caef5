"""What a model is used for, and how it pools: its files' own word, then the user's. No torch.

Names are vLLM's: `runner`, `convert`, and the fields of its `PoolerConfig`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from octavo.config import PoolingConfig
from octavo.lib.errors import CheckpointError, ConfigError
from octavo.models.config_values import ConfigValues
from octavo.models.hf_config import HFConfig
from octavo.models.sentence_transformers import SentenceModules, read_modules
from octavo.models.spec import DecoderSpec

RUNNERS = ("auto", "generate", "pooling")
CONVERTS = ("auto", "none", "embed", "classify")
POOLING_TYPES = ("LAST", "MEAN", "CLS")
_FLAG = "--pooler-config"


def resolve_pooling(
    path: str,
    hf: HFConfig,
    spec: DecoderSpec,
    *,
    runner: str = "auto",
    convert: str = "auto",
    given: Mapping[str, object] | None = None,
) -> tuple[str, PoolingConfig | None]:
    """The runner, `generate` or `pooling`, and how vectors are made (None: they are not).

    Args:
        path: The checkpoint.
        hf: Its configuration.
        spec: The model.
        runner: One of `RUNNERS`.
        convert: One of `CONVERTS`.
        given: `--pooler-config`.

    Raises:
        ConfigError: the settings contradict the model or each other; `param` names the flag.
        CheckpointError: the module files beside the model are damaged, or ask for something not known here.
    """
    modules = None if hf.is_gguf else read_modules(Path(path))
    stored = hf.pooling
    states_embedding = modules is not None or stored.pooling_type is not None
    task = _task(convert, stored.task or ("embed" if states_embedding else None))
    runner = _runner(runner, convert, task, hf.architecture, only_pooled=stored.task is not None)
    if runner == "generate" and not (states_embedding or given):
        return runner, None
    if task == "classify":
        return runner, _classifier(hf, given)
    return runner, _embedder(hf, spec, modules, given)


def _task(convert: str, stated: str | None) -> str | None:
    if convert == "none":
        return None
    return stated if convert == "auto" else convert


def _runner(runner: str, convert: str, task: str | None, architecture: str, *, only_pooled: bool) -> str:
    """Decide `auto`, and refuse what the checkpoint cannot do."""
    if runner == "generate" and only_pooled:
        raise ConfigError(
            f"--runner generate: {architecture} has no language head, so it can only be pooled.",
            param="runner",
        )
    if convert in ("embed", "classify") and runner == "generate":
        raise ConfigError(f"--convert {convert} is for --runner pooling.", param="convert")
    if convert == "none" and (runner == "pooling" or only_pooled):
        raise ConfigError(
            f"--convert none leaves {architecture} as it is, and then it is not pooled.", param="convert"
        )
    if runner != "auto":
        return runner
    return "generate" if task is None else "pooling"


def _embedder(
    hf: HFConfig, spec: DecoderSpec, modules: SentenceModules | None, given: Mapping[str, object] | None
) -> PoolingConfig:
    stored, dense = hf.pooling, modules.dense if modules else ()
    size = spec.hidden_size
    for layer in dense:
        if layer.in_features != size:
            raise CheckpointError(
                f"in_features is {layer.in_features}, but {size} numbers come in", file=layer.folder
            )
        size = layer.out_features
    found = PoolingConfig(
        task="embed",
        pooling_type=(modules.pooling_type if modules else stored.pooling_type) or "LAST",
        activation="normalize",
        size=size,
        # What Sentence Transformers would do; a model that says nothing is normalised, as in vLLM.
        use_activation=modules.normalize if modules else True,
        is_matryoshka=stored.is_matryoshka,
        matryoshka_dimensions=stored.matryoshka_dimensions,
        dense=dense,
        max_seq_length=modules.max_seq_length if modules else None,
    )
    return _checked(_overridden(found, given))


def _classifier(hf: HFConfig, given: Mapping[str, object] | None) -> PoolingConfig:
    stored = hf.pooling
    found = _overridden(
        PoolingConfig(
            task="classify",
            pooling_type="LAST",
            activation=stored.activation,
            size=len(stored.labels),
            labels=stored.labels,
        ),
        given,
    )
    if found.pooling_type != "LAST" or found.dimensions or found.is_matryoshka:
        raise ConfigError(
            f"{_FLAG}: a decoder's classifier reads the last token (LAST), and its numbers are never cut.",
            param="pooler_config",
        )
    return found


def _overridden(found: PoolingConfig, given: Mapping[str, object] | None) -> PoolingConfig:
    """The user's settings over the model's; one that is not known is an error."""
    values = ConfigValues(given or {}, _FLAG)
    try:
        kind = values.str("seq_pooling_type", values.str("pooling_type", found.pooling_type)).upper()
        use = values.bool("use_activation", values.bool("normalize", found.use_activation))
        sizes = tuple(values.list("matryoshka_dimensions", int) or found.matryoshka_dimensions)
        changed = dataclasses.replace(
            found,
            pooling_type=kind,
            use_activation=use,
            dimensions=values.int("dimensions", found.dimensions),
            is_matryoshka=values.bool("is_matryoshka", found.is_matryoshka or bool(sizes)),
            matryoshka_dimensions=sizes,
        )
    except CheckpointError as error:
        raise ConfigError(error.message, param="pooler_config") from error
    for names in (("seq_pooling_type", "pooling_type"), ("use_activation", "normalize")):
        if len({str(values.get(name)) for name in names if name in values}) > 1:
            raise ConfigError(f"{_FLAG}: {' and '.join(names)} contradict each other.", param="pooler_config")
    unknown = values.unread(frozenset())
    if unknown:
        raise ConfigError(f"{_FLAG} has no setting {unknown[0]!r}.", param="pooler_config")
    if kind not in POOLING_TYPES:
        raise ConfigError(
            f"{_FLAG}: pooling_type is {kind!r}; {', '.join(POOLING_TYPES)} are supported.",
            param="pooler_config",
        )
    return changed


def _checked(found: PoolingConfig) -> PoolingConfig:
    for size in (found.dimensions, *found.matryoshka_dimensions):
        if size is not None and not 1 <= size <= found.size:
            raise ConfigError(
                f"{_FLAG}: {size} dimensions; an embedding of this model has {found.size}.",
                param="pooler_config",
            )
    return found
