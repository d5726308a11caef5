"""What a model's own files say, before any weight is read: its shape, its limits, its stop tokens, its sampling defaults."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.config import ModelConfig, PoolingConfig
from octavo.engine.default_model import GENERATION_CONFIG, SERVED_NAME, default_model_path
from octavo.engine.sampling_settings import processor_paths, reasoning_marks
from octavo.lib.errors import ConfigError, InvalidRequestError
from octavo.models.pooling_config import resolve_pooling
from octavo.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.args import EngineArgs
    from octavo.models.hf_config import HFConfig
    from octavo.models.spec import DecoderSpec
    from octavo.tokenizers import Tokenizer

logger = logging.getLogger(__name__)

# generation_config.json's name -> ours. Other keys there (do_sample, cache settings) have no meaning here.
_SAMPLING_KEYS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
# vLLM's other names of types.
DTYPE_SYNONYMS = {"half": "float16", "float": "float32"}
_NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "top_k": 0}


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model's configuration, read and understood."""

    path: str
    hf: HFConfig
    spec: DecoderSpec


def resolve_model_path(model: str | None) -> str:
    """The folder or file to load; the embedded default when `model` is None.

    Raises:
        ConfigError: nothing lies there.
    """
    if model is None:
        return default_model_path()
    path = os.path.expanduser(model)
    if os.path.isfile(path) and not path.endswith(".gguf"):
        raise ConfigError(f"--model {model!r} is a file, but not a .gguf file.", param="model")
    if not os.path.exists(path):
        raise ConfigError(
            f"--model {model!r} does not exist. Name a local folder with config.json and safetensors, or a .gguf "
            f"file.{_hub_hint(model)}",
            param="model",
        )
    return path


def _hub_hint(model: str) -> str:
    """Advice for a name such as `org/model`, which other engines would download."""
    parts = model.split("/")
    if len(parts) != 2 or not all(parts) or parts[0] in (".", "..", "~"):
        return ""
    return f" Nothing is downloaded: fetch it first (`hf download {model} --local-dir FOLDER`), then name the folder."


def read_model_facts(path: str) -> ModelFacts:
    """Read the configuration at `path`.

    Raises:
        CheckpointError: it cannot be read, or (UnsupportedModelError) asks for something not known here.
    """
    from octavo.models.hf_config import HFConfig
    from octavo.models.registry import build_spec

    hf = HFConfig.from_path(path)
    return ModelFacts(path=path, hf=hf, spec=build_spec(hf))


def resolve_model_config(args: EngineArgs, facts: ModelFacts) -> ModelConfig:
    """The `ModelConfig` of these arguments for that model.

    Raises:
        ConfigError: `max_model_len` is above what the model was made for, or a generation config cannot be read.
    """
    generation = _generation_config(args, facts.path)
    defaults = _sampling_defaults(generation)
    runner, pooling = resolve_pooling(
        facts.path,
        facts.hf,
        facts.spec,
        runner=args.runner,
        convert=args.convert,
        given=_json_object("pooler_config", args.pooler_config),
    )
    return ModelConfig(
        model=facts.path,
        served_model_names=_served_names(args, facts.path),
        tokenizer=None if args.skip_tokenizer_init else args.tokenizer or facts.path,
        dtype=facts.hf.torch_dtype if args.dtype == "auto" else DTYPE_SYNONYMS.get(args.dtype, args.dtype),
        max_model_len=_max_model_len(
            args.max_model_len, facts.spec.max_position, _trained_length(runner, pooling)
        ),
        vocab_size=facts.spec.vocab_size,
        hidden_size=facts.spec.hidden_size,
        enable_prompt_embeds=args.enable_prompt_embeds,
        eos_token_ids=_eos_ids(facts, generation),
        seed=args.seed,
        max_logprobs=args.max_logprobs,
        logprobs_mode=args.logprobs_mode,
        logits_processors=processor_paths(args.logits_processors),
        reasoning_marks=reasoning_marks(args.reasoning_config),
        enforce_eager=args.enforce_eager,
        default_sampling=tuple(defaults.items()),
        runner=runner,
        pooling=pooling,
    )


def _json_object(name: str, given: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A flag that holds JSON, which scripts may give as a dictionary.

    Raises:
        ConfigError: it is no JSON object.
    """
    if given is None or isinstance(given, Mapping):
        return given
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"--{name.replace('_', '-')} must be a JSON object, got {given!r}.", param=name)
    return value


def tokenizer_of(model: ModelConfig) -> Tokenizer | None:
    """The model's tokenizer; None if the user wants none.

    Raises:
        CheckpointError: it cannot be read.
    """
    from octavo.tokenizers import load_tokenizer

    return None if model.tokenizer is None else load_tokenizer(model.tokenizer)


def require_text(args: EngineArgs, command: str) -> None:
    """Refuse `--skip-tokenizer-init` for a command whose users write and read text.

    Raises:
        ConfigError: it was given.
    """
    if args.skip_tokenizer_init:
        raise ConfigError(
            f"octavo {command} needs a tokenizer: leave out --skip-tokenizer-init.",
            param="skip_tokenizer_init",
        )


def _served_names(args: EngineArgs, path: str) -> tuple[str, ...]:
    given = args.served_model_name
    if given:
        return (given,) if isinstance(given, str) else tuple(given)
    if args.model is None:
        return (SERVED_NAME,)
    # Its plain name first; the path as it was written works too, as clients of vLLM send it.
    return tuple(dict.fromkeys((Path(path).name.removesuffix(".gguf"), args.model)))


def cache_dtype(path: str, dtype: str) -> str:
    """What `--kv-cache-dtype auto` means: the model's own type; for a GGUF file, by the type of most of its weights.

    Quantised weights leave float32 activations, of which float16 keeps more digits than bfloat16 would.
    """
    if not path.endswith(".gguf"):
        return dtype
    from octavo.lib.gguf import GGMLType, GGUFFile

    with GGUFFile.open(path) as file:
        weights: Counter[GGMLType] = Counter()
        for tensor in file.tensors.values():
            weights[tensor.ggml_type] += tensor.nbytes
    most = weights.most_common(1)[0][0] if weights else GGMLType.F16
    return {GGMLType.F32: "float32", GGMLType.BF16: "bfloat16"}.get(most, "float16")


def _trained_length(runner: str, pooling: PoolingConfig | None) -> int | None:
    """What an embedder's module files limit its inputs to; a user may ask for more, up to what the positions allow."""
    return pooling.max_seq_length if runner == "pooling" and pooling is not None else None


def _max_model_len(asked: int | None, limit: int, usual: int | None = None) -> int:
    if asked is not None and asked > limit:
        raise ConfigError(
            f"--max-model-len {asked} is more than the {limit} tokens that this model was made for. Use at most {limit}.",
            param="max_model_len",
        )
    return min(limit, usual or limit) if asked is None else asked


def _generation_config(args: EngineArgs, model_path: str) -> Mapping[str, Any]:
    """The parsed generation_config.json, empty where there is none to use."""
    where = args.generation_config
    if where == "vllm":
        return {}
    if where == "auto" and args.model is None:
        return GENERATION_CONFIG
    from octavo.models.hf_config import generation_config

    if where == "auto":
        return generation_config(model_path)
    if not (Path(where) / "generation_config.json").is_file():
        raise ConfigError(
            f"--generation-config {where!r}: there is no generation_config.json.", param="generation_config"
        )
    return generation_config(where)


def _sampling_defaults(generation: Mapping[str, Any]) -> dict[str, float | int]:
    found = {
        ours: generation[theirs]
        for theirs, ours in _SAMPLING_KEYS.items()
        if generation.get(theirs) is not None
    }
    defaults = {name: value for name, value in found.items() if value != _NEUTRAL.get(name)}
    try:
        SamplingParams(**defaults)
    except InvalidRequestError as error:
        raise ConfigError(
            f"generation_config.json has a value that cannot be used: {error.message}. Correct it, or start with "
            "--generation-config vllm.",
            param="generation_config",
        ) from error
    if defaults:
        shown = ", ".join(f"{name}={value}" for name, value in defaults.items())
        logger.info(
            "Sampling defaults of the model: %s (--generation-config vllm ignores them).",
            shown,
        )
    return defaults


def _eos_ids(facts: ModelFacts, generation: Mapping[str, Any]) -> tuple[int, ...]:
    extra = generation.get("eos_token_id")
    more = extra if isinstance(extra, list) else [] if extra is None else [extra]
    for token in more:
        if type(token) is not int or not 0 <= token < facts.spec.vocab_size:
            raise ConfigError(
                f"generation_config.json has the eos_token_id {token!r}, which is no token of a vocabulary of "
                f"{facts.spec.vocab_size}. Correct it, or start with --generation-config vllm.",
                param="generation_config",
            )
    return tuple(dict.fromkeys([*facts.hf.eos_token_ids, *more]))
