"""From files to a decoder that can run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from octavo.lib.errors import ConfigError
from octavo.models import registry
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.quantization_config import StoredQuantization, check_asked
from octavo.models.spec import DecoderSpec
from octavo.quantization import (
    AWQMethod,
    FloatMethod,
    GGUFMethod,
    GPTQMethod,
    MethodResolver,
    PackedIntMethod,
    RoundingResolver,
    ScaleBlock,
    ScaledMethod,
    StoredMethod,
    StoredResolver,
    UniformResolver,
)
from octavo.weights.dummy import DummySource
from octavo.weights.loader import load_weights, no_progress, open_source
from octavo.weights.names import GGUFNaming, gguf_rules, hf_rules
from octavo.weights.rules import Rules
from octavo.weights.source import RawDType, WeightSource

Progress = Callable[[int, int], None]

# Scales of activations, which are rounded our own way, and shapes, which the model knows.
_BESIDE_WEIGHTS = r".*\.(input_scale|input_zero_point|output_scale|weight_shape)"

_DUMMY_FORMATS = {"float32": RawDType.F32, "bfloat16": RawDType.BF16, "float16": RawDType.F16}


def load_model(
    path: str,
    hf: HFConfig,
    spec: DecoderSpec,
    *,
    load_format: str = "auto",
    quantization: str | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """Build the decoder and fill it.

    Args:
        path: Directory of a Hugging Face checkpoint, or a `.gguf` file.
        hf: Its configuration.
        spec: What `build_spec(hf)` made of it, possibly limited to shorter sequences.
        load_format: `auto`, `safetensors`, `gguf`, or `dummy` for pseudo-random weights.
        quantization: `int8` or `int4` to round float weights to while they load; or how the checkpoint is quantised
            (`awq`, `gptq`, ...), which it says itself. None keeps what is stored.
        progress: Called with (bytes done, bytes in all) after each tensor.

    Raises:
        CheckpointError: the weights are damaged or not this model's; names the file and the tensor.
        ConfigError: `load_format` or `quantization` contradict the checkpoint.
    """
    _check_format(load_format, hf)
    check_asked(quantization, hf)
    if load_format == "dummy":
        return _dummy(spec, hf, quantization, progress or no_progress)
    source = open_source(path, quantised=hf.quantization is not None)
    try:
        if hf.quantization is not None:
            return _load_quantised(spec, hf, source, progress or no_progress)
        if quantization is not None:
            _check_float(source)
        decoder = Decoder(spec, _resolver(hf, quantization))
        load_weights(decoder, source, _rules(hf, spec), progress or no_progress)
    finally:
        source.close()
    return decoder


def _dummy(spec: DecoderSpec, hf: HFConfig, quantization: str | None, progress: Progress) -> Decoder:
    decoder = Decoder(spec, _resolver(hf, quantization))
    source = DummySource(decoder.expected(), dtype=_DUMMY_FORMATS[hf.torch_dtype])
    load_weights(decoder, source, hf_rules(), progress)
    return decoder


def _load_quantised(spec: DecoderSpec, hf: HFConfig, source: WeightSource, progress: Progress) -> Decoder:
    """A checkpoint that some tool has quantised."""
    assert hf.quantization is not None
    rules = hf_rules(_renames(hf, spec))
    names = {rule.target: name for name in source.names() if (rule := rules.resolve(name))}
    decoder = Decoder(spec, StoredResolver(stored_method(hf.quantization), names.keys()))
    unused = (_BESIDE_WEIGHTS, *_zero_biases(names, decoder, source))
    load_weights(decoder, source, hf_rules(_renames(hf, spec), unused), progress)
    return decoder


def stored_method(stored: StoredQuantization) -> StoredMethod:
    """What multiplies by weights of a checkpoint's kind."""
    if stored.layout == "awq":
        return AWQMethod(stored.group)
    if stored.layout == "gptq":
        return GPTQMethod(stored.bits, stored.group, stored.zero_offset)
    if stored.layout == "packed":
        return PackedIntMethod(stored.group, symmetric=stored.symmetric)
    fmt = "int8_g128" if stored.layout == "int8" else "e4m3_g128"
    return ScaledMethod(fmt, ScaleBlock(stored.rows, stored.group), stored.scale)


def _zero_biases(names: Mapping[str, str], decoder: Decoder, source: WeightSource) -> list[str]:
    """Patterns of the biases that a tool has added to every matrix and that do nothing (AutoGPTQ)."""
    added = [name for name in names if name.endswith(".bias") and name not in decoder.expected()]
    return [re.escape(name) for name in added if not bool(source.get(names[name]).data.any())]


def _resolver(hf: HFConfig, quantization: str | None) -> MethodResolver:
    if quantization is not None:
        return RoundingResolver(quantization)
    return UniformResolver(GGUFMethod() if hf.is_gguf else FloatMethod())


def _check_float(source: WeightSource) -> None:
    """Rounding twice would lose twice."""
    for name in source.names():
        dtype = source.info(name).dtype
        if dtype.is_quantized:
            raise ConfigError(
                f"--quantization rounds float weights, but {name} of {source.path} is {dtype} already: leave it out.",
                param="quantization",
            )


def _check_format(load_format: str, hf: HFConfig) -> None:
    if load_format == "dummy" and hf.quantization is not None:
        raise ConfigError(
            f"load_format is 'dummy', which makes float weights, but {hf.origin} is quantised",
            param="load_format",
        )
    actual = "gguf" if hf.is_gguf else "safetensors"
    if load_format not in ("auto", "dummy", actual):
        raise ConfigError(f"load_format is {load_format!r}, but {hf.origin} is {actual}", param="load_format")


def _renames(hf: HFConfig, spec: DecoderSpec) -> tuple[tuple[str, str], ...]:
    """The family's; and of a model that is only pooled, which may be stored without its outer shell, the prefix."""
    own = registry.hf_renames(hf.architecture)
    return own if spec.is_causal_lm else (*own, (r"^(?!model\.|lm_head\.|score\.)", "model."))


def _rules(hf: HFConfig, spec: DecoderSpec) -> Rules:
    if not hf.is_gguf:
        return hf_rules(_renames(hf, spec))
    naming = GGUFNaming(**registry.gguf_naming(hf.architecture))
    return gguf_rules(naming, num_heads=hf.num_heads(), num_kv_heads=hf.num_kv_heads())
