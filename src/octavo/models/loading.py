"""From files to a decoder that can run."""

from __future__ import annotations

from collections.abc import Callable

from octavo.lib.errors import ConfigError
from octavo.models import registry
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.spec import DecoderSpec
from octavo.quantization import FloatMethod, GGUFMethod, MethodResolver, RoundingResolver, UniformResolver
from octavo.weights.dummy import DummySource
from octavo.weights.loader import load_weights, no_progress, open_source
from octavo.weights.names import GGUFNaming, gguf_rules, hf_rules
from octavo.weights.rules import Rules
from octavo.weights.source import RawDType, WeightSource

Progress = Callable[[int, int], None]

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
        quantization: `int8` or `int4` to round float weights to while they load; None keeps what is stored.
        progress: Called with (bytes done, bytes in all) after each tensor.

    Raises:
        CheckpointError: the weights are damaged or not this model's; names the file and the tensor.
        ConfigError: `load_format` contradicts the path, or `quantization` is asked for what is quantised already.
    """
    _check_format(load_format, hf)
    decoder = Decoder(spec, _resolver(hf, quantization))
    if load_format == "dummy":
        source: WeightSource = DummySource(decoder.expected(), dtype=_DUMMY_FORMATS[hf.torch_dtype])
        load_weights(decoder, source, hf_rules(), progress or no_progress)
        return decoder
    source = open_source(path)
    try:
        if quantization is not None:
            _check_float(source)
        load_weights(decoder, source, _rules(hf), progress or no_progress)
    finally:
        source.close()
    return decoder


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
    actual = "gguf" if hf.is_gguf else "safetensors"
    if load_format not in ("auto", "dummy", actual):
        raise ConfigError(f"load_format is {load_format!r}, but {hf.origin} is {actual}", param="load_format")


def _rules(hf: HFConfig) -> Rules:
    if not hf.is_gguf:
        return hf_rules(registry.hf_renames(hf.architecture))
    naming = GGUFNaming(**registry.gguf_naming(hf.architecture))
    return gguf_rules(naming, num_heads=hf.num_heads(), num_kv_heads=hf.num_kv_heads())
