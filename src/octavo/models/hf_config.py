"""A checkpoint's configuration: `config.json` of a Hugging Face directory, or the metadata of a GGUF file. No torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from octavo.layers.parts import Rope
from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.lib.gguf import GGUFFile
from octavo.models import rope_config
from octavo.models.config_values import ConfigValues, read_json
from octavo.models.gguf_config import end_token_ids, gguf_settings
from octavo.models.quantization_config import StoredQuantization, read_quantization
from octavo.models.stored_pooling import StoredPooling, read_stored_pooling

_DTYPES = ("float32", "bfloat16", "float16")
# Settings that do not change what `forward` computes: training, generation defaults, tokens, who wrote the file.
_HARMLESS_NAMES = """
    architectures model_type auto_map transformers_version transformers.js_config name_or_path torch_dtype dtype
    initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop embedding_dropout classifier_dropout
    use_cache gradient_checkpointing pretraining_tp output_router_logits output_attentions output_hidden_states
    return_dict return_dict_in_generate torchscript use_bfloat16 tf_legacy_loss pruned_heads chunk_size_feed_forward
    is_encoder_decoder is_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder
    bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id prefix
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k
    top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences output_scores forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens task_specific_params
    router_aux_loss_coef router_jitter_noise
    finetuning_task label2id tokenizer_class is_llama_config unsloth_fixed
    unsloth_version cache_implementation original_max_position_embeddings truncate
"""
HARMLESS = frozenset(_HARMLESS_NAMES.split())


class HFConfig(ConfigValues):
    """Settings of one model with what every family asks for. Made by `from_path`.

    Args:
        is_gguf: Whether `origin` is a GGUF file.
        generation: Contents of `generation_config.json`.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        origin: str,
        *,
        is_gguf: bool = False,
        generation: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(values, origin)
        self.is_gguf = is_gguf
        self._generation = generation or {}

    @classmethod
    def from_path(cls, path: str) -> HFConfig:
        """Read the configuration of a checkpoint directory or a `.gguf` file.

        Raises:
            CheckpointError: it is missing, damaged, or not a JSON object.
        """
        if path.endswith(".gguf"):
            with GGUFFile.open(path) as file:
                return cls(gguf_settings(file), path, is_gguf=True)
        config = Path(path) / "config.json"
        return cls(_read_json(config), str(config), generation=generation_config(path))

    @property
    def architecture(self) -> str:
        """`LlamaForCausalLM` and the like; of a GGUF file, its own name for the architecture (`llama`)."""
        names = self.list("architectures", str) or []
        if len(names) != 1:
            raise self.error("architectures", f"must name one architecture, but is {names}")
        return names[0]

    @functools.cached_property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, from the configuration and `generation_config.json`, without doubles.

        Of a GGUF file from its vocabulary, which is read here and not before: it is long.
        """
        if self.is_gguf:
            with GGUFFile.open(self.origin) as file:
                return end_token_ids(file)
        both = _ids(self.values.get("eos_token_id")) + _ids(self._generation.get("eos_token_id"))
        return tuple(dict.fromkeys(both))

    @property
    def torch_dtype(self) -> str:
        """`float32`, `bfloat16` or `float16` as the checkpoint states it; `float32` where it does not (GGUF)."""
        name = self.str("dtype", self.str("torch_dtype", "float32")).removeprefix("torch.")
        if name not in _DTYPES:
            raise self.unsupported("dtype", f"is {name!r}; supported are {', '.join(_DTYPES)}")
        return name

    @functools.cached_property
    def quantization(self) -> StoredQuantization | None:
        """How the weights of a safetensors checkpoint are quantised; None: they are floats.

        Raises:
            UnsupportedModelError: in a way that no kernel is for; names the setting.
        """
        return read_quantization(self)

    @functools.cached_property
    def pooling(self) -> StoredPooling:
        """What the configuration says of embeddings and classes.

        Raises:
            UnsupportedModelError: something that is not known here; names the setting.
        """
        return read_stored_pooling(self, self.architecture)

    def with_defaults(self, **defaults: object) -> HFConfig:
        """The same configuration with values for settings that it does not state (GGUF leaves some to the reader)."""
        stated = {key: value for key, value in self.values.items() if value is not None}
        both = {**defaults, **stated}
        other = HFConfig(both, self.origin, is_gguf=self.is_gguf, generation=self._generation)
        other._read, other._subs = self._read, self._subs  # what one reads, the other need not
        return other

    def finish(self) -> None:
        """Refuse the model if a setting that may change its results was read by nobody.

        Raises:
            UnsupportedModelError: names the settings.
        """
        unread = self.unread(HARMLESS)
        if unread:
            raise UnsupportedModelError(
                f"these settings are not known to {self.architecture}: {', '.join(sorted(unread))}",
                file=self.origin,
            )

    def num_heads(self) -> int:
        return self.int("num_attention_heads")

    def num_kv_heads(self) -> int:
        """Key-value heads; as many as query heads where not stated."""
        return self.int("num_key_value_heads", self.num_heads())

    def head_dim(self) -> int:
        """Width of a head; hidden_size / num_attention_heads where not stated."""
        heads = self.num_heads()
        if heads == 0 or heads % max(self.num_kv_heads(), 1):
            raise self.error("num_attention_heads", f"({heads}) must be a multiple of num_key_value_heads")
        return self.int("head_dim", self.int("hidden_size") // heads)

    def rms_eps(self) -> float:
        return self.float("rms_norm_eps", 1e-6)

    def rope(self, default_theta: float = 10000.0) -> Rope:
        """Rotary positions of a model whose layers all have the same."""
        return rope_config.read_rope(
            self, self.head_dim(), self.int("max_position_embeddings"), default_theta
        )

    def layer_ropes(self, default_theta: float, default_local: float) -> tuple[Rope, Rope]:
        """Rotary positions of full and of sliding-window layers."""
        limit = self.int("max_position_embeddings")
        return rope_config.read_layer_ropes(self, self.head_dim(), limit, default_theta, default_local)

    def layer_windows(self, window: int, is_sliding: list[bool]) -> list[int]:
        """The window of each layer: `layer_types` where stated, else `is_sliding`; 0 for full layers."""
        types = self.list("layer_types", str)
        if types is not None:
            known = {rope_config.FULL_ATTENTION, rope_config.SLIDING_ATTENTION}
            if not set(types) <= known or len(types) != len(is_sliding):
                raise self.unsupported("layer_types", f"must hold {len(is_sliding)} of {sorted(known)}")
            is_sliding = [name == rope_config.SLIDING_ATTENTION for name in types]
        if any(is_sliding) and window <= 0:
            raise self.error("sliding_window", "must be positive, as there are sliding-window layers")
        return [window if sliding else 0 for sliding in is_sliding]


def generation_config(path: str) -> dict[str, object]:
    """Contents of `generation_config.json` in a checkpoint directory; empty where there is none.

    Raises:
        CheckpointError: the file is not a JSON object.
    """
    file = Path(path) / "generation_config.json"
    return _read_json(file) if not path.endswith(".gguf") and file.is_file() else {}


def _read_json(file: Path) -> dict[str, object]:
    try:
        values = read_json(file)
    except CheckpointError as e:
        if isinstance(e.__cause__, FileNotFoundError):
            raise CheckpointError(_missing(file), file=str(file.parent)) from e
        raise
    if not isinstance(values, dict):
        raise CheckpointError(f"must hold a JSON object, but holds {type(values).__name__}", file=str(file))
    return values


def _missing(file: Path) -> str:
    """Why a folder is no model, and what in it may be one."""
    ggufs = sorted(path.name for path in file.parent.glob("*.gguf"))
    hint = f"; name a GGUF file in it, such as {ggufs[0]}" if ggufs else ""
    return f"this folder has no {file.name}{hint}"


def _ids(value: object) -> list[int]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
