"""How a safetensors checkpoint is quantised: `quantization_config` of `config.json`, as the tools write it. No torch.

Which matrices are quantised is not read from here but seen from their tensors (`octavo.quantization.stored`). What changes
the meaning of the tensors and is not known here is refused, naming the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from octavo.lib.errors import ConfigError
from octavo.models.config_values import ConfigValues

if TYPE_CHECKING:
    from octavo.models.hf_config import HFConfig

METHODS = ("awq", "gptq", "compressed-tensors", "fp8")

# What does not change what a tensor means: which matrices are float, how the weights were found, who wrote them, kernels
# of other engines, and how their activations are rounded (octavo.quantization.scaled).
_HARMLESS_NAMES = """
    modules_to_not_convert modules_in_block_to_quantize block_name_to_quantize module_name_preceding_first_block lm_head
    ignore ignored_layers targets backend damp_percent damp_auto_increment static_groups sym true_sequential
    model_name_or_path model_file_base_name model_seqlen dataset tokenizer batch_size pad_token_id cache_block_outputs
    use_cuda_fp16 use_exllama disable_exllama exllama_config max_input_length do_fuse modules_to_fuse fuse_max_seq_len
    meta quantizer hyb_act act_group_aware mse nsamples global_compression_ratio observer observer_kwargs scale_dtype
    zp_dtype scale_fmt version
"""
_HARMLESS = _HARMLESS_NAMES.split()


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """What the quantised tensors of a checkpoint mean.

    Attributes:
        method: As the configuration names it: one of `METHODS`.
        layout: Which tensors there are: AWQ's, GPTQ's, packed 4-bit integers or 8-bit elements of compressed-tensors.
        bits: Of a weight.
        group: Columns that share a scale; 0: all of a row.
        rows: Rows that share a scale; 0: all of a matrix.
        zero_offset: What is added to stored zero points.
        symmetric: Whether there are none.
        scale: Last part of the name of the scales' tensors.
    """

    method: str
    layout: Literal["awq", "gptq", "packed", "int8", "fp8"]
    bits: int
    group: int
    rows: int = 1
    zero_offset: int = 0
    symmetric: bool = False
    scale: str = "weight_scale"


def read_quantization(hf: HFConfig) -> StoredQuantization | None:
    """The quantisation that a configuration states; None where it states none.

    Raises:
        UnsupportedModelError: it is of a kind that no kernel here is for; names the setting.
        CheckpointError: a setting is missing or of the wrong type.
    """
    if "quantization_config" not in hf:
        return None
    config = hf.sub("quantization_config")
    method = config.str("quant_method")
    if method not in _READERS:
        raise config.unsupported("quant_method", f"is {method!r}; supported are {', '.join(METHODS)}")
    for name in _HARMLESS:
        config.get(name)
    return _READERS[method](config)


def check_asked(asked: str | None, hf: HFConfig) -> None:
    """Hold `--quantization` to the checkpoint: rounding is for floats, other values must be what it says itself.

    Raises:
        ConfigError: they differ.
    """
    stored = hf.quantization.method if hf.quantization else None
    if asked is None or asked == stored or (asked not in METHODS and stored is None):
        return
    actual = "is not quantised" if stored is None else f"is quantised with {stored}"
    raise ConfigError(
        f"--quantization is {asked}, but {hf.origin} says that it {actual}: leave it out.",
        param="quantization",
    )


def _awq(config: ConfigValues) -> StoredQuantization:
    config.expect("version", "gemm", "GEMM")
    config.expect("zero_point", True)
    _expect_bits(config, "bits", 4)
    return StoredQuantization("awq", "awq", 4, _group(config))


def _gptq(config: ConfigValues) -> StoredQuantization:
    _expect_bits(config, "bits", 4, 8)
    config.expect("is_marlin_format", False)
    config.expect("checkpoint_format", "gptq", "gptq_v2")
    config.expect("pack_dtype", "int32")
    # Columns sorted by activation are fine within one group; the tensors `g_idx` tell.
    config.bool("desc_act", False)
    dynamic = config.get("dynamic") or {}
    if not isinstance(dynamic, Mapping) or not all(str(key).startswith("-:") for key in dynamic):
        raise config.unsupported("dynamic", "gives modules settings of their own, which is not supported")
    bits, group = config.int("bits"), _group(config)
    if bits == 8 and group % 128:
        raise config.unsupported("group_size", f"is {group}; with 8 bits it must be -1 or a multiple of 128")
    offset = 0 if config.str("checkpoint_format", "gptq") == "gptq_v2" else 1
    return StoredQuantization("gptq", "gptq", bits, group, zero_offset=offset)


def _fp8(config: ConfigValues) -> StoredQuantization:
    config.expect("fmt", "e4m3", "float8_e4m3fn")
    config.expect("activation_scheme", "dynamic", "static")
    block = config.list("weight_block_size", int)
    if block is None:
        return StoredQuantization("fp8", "fp8", 8, 0, rows=0)
    return _blocks(config, "weight_block_size", "fp8", block, "weight_scale_inv")


def _compressed(config: ConfigValues) -> StoredQuantization:
    config.expect("quantization_status", "compressed", "frozen")
    for name in ("kv_cache_scheme", "transform_config"):
        if config.get(name):
            raise config.unsupported(name, "is not supported")
    if config.sub("sparsity_config").str("format", "dense") != "dense":
        raise config.unsupported("sparsity_config", "is not supported; only dense weights are")
    for name in ("targets", "ignore", "registry_requires_subclass"):
        config.sub("sparsity_config").get(name)
    groups = config.sub("config_groups")
    if len(groups.values) != 1:
        raise config.unsupported("config_groups", f"has {len(groups.values)} groups; only one is supported")
    scheme = groups.sub(next(iter(groups.values)))
    for name in _HARMLESS:
        scheme.get(name)
    _check_activations(scheme)
    fmt = scheme.str("format", config.str("format"))
    return _weights(scheme, config, fmt)


def _check_activations(scheme: ConfigValues) -> None:
    """Ours are rounded to 8 bits at most (see `octavo.quantization.scaled`)."""
    if scheme.get("output_activations") is not None:
        raise scheme.unsupported("output_activations", "must be null: outputs are not rounded here")
    activations = scheme.sub("input_activations")
    if activations.int("num_bits", 8) < 8:
        raise activations.unsupported("num_bits", "is below 8, which is not supported")
    for name in activations.values:
        activations.get(name)


def _weights(scheme: ConfigValues, config: ConfigValues, fmt: str) -> StoredQuantization:
    if "weights" not in scheme:
        raise scheme.unsupported("weights", "is null: schemes for activations alone are not supported")
    weights = scheme.sub("weights")
    for name in _HARMLESS:
        weights.get(name)
    weights.expect("dynamic", False)
    weights.expect("actorder", "weight", "static", False)
    known = {"pack-quantized": ("packed", "int", 4), "int-quantized": ("int8", "int", 8)}
    known |= dict.fromkeys(("float-quantized", "naive-quantized"), ("fp8", "float", 8))
    if fmt not in known:
        raise config.unsupported("format", f"is {fmt!r}; supported are {', '.join(known)}")
    layout, kind, bits = known[fmt]
    weights.expect("type", kind)
    _expect_bits(weights, "num_bits", bits)
    return _COMPRESSED[layout](weights)


def _compressed_packed(weights: ConfigValues) -> StoredQuantization:
    weights.expect("strategy", "group", "channel")
    weights.get("block_structure")
    symmetric = weights.bool("symmetric", True)
    return StoredQuantization("compressed-tensors", "packed", 4, _group(weights), symmetric=symmetric)


def _compressed_int8(weights: ConfigValues) -> StoredQuantization:
    weights.expect("symmetric", True)
    weights.expect("strategy", "channel", "tensor")
    weights.get("group_size")
    weights.get("block_structure")
    rows = 0 if weights.str("strategy") == "tensor" else 1
    return StoredQuantization("compressed-tensors", "int8", 8, 0, rows=rows, symmetric=True)


def _compressed_fp8(weights: ConfigValues) -> StoredQuantization:
    weights.expect("symmetric", True)
    weights.expect("strategy", "channel", "tensor", "block")
    weights.get("group_size")
    block = weights.list("block_structure", int)
    if weights.str("strategy") == "block":
        return _blocks(weights, "block_structure", "compressed-tensors", block or [], "weight_scale")
    rows = 0 if weights.str("strategy") == "tensor" else 1
    return StoredQuantization("compressed-tensors", "fp8", 8, 0, rows=rows, symmetric=True)


def _blocks(config: ConfigValues, key: str, method: str, block: list[int], scale: str) -> StoredQuantization:
    if len(block) != 2 or block[0] < 1 or block[1] < 1 or block[1] % 128:
        raise config.unsupported(key, f"is {block}; supported are [n, 128] and multiples")
    return StoredQuantization(method, "fp8", 8, block[1], rows=block[0], symmetric=True, scale=scale)


def _expect_bits(config: ConfigValues, key: str, *supported: int) -> None:
    bits = config.int(key)
    if bits not in supported:
        raise config.unsupported(key, f"is {bits}; supported are {' and '.join(map(str, supported))}")


def _group(config: ConfigValues) -> int:
    """`group_size`: 0 for -1, which stands for a whole row, and for null."""
    group = config.get("group_size", -1)
    if group == -1:
        return 0
    if not isinstance(group, int) or isinstance(group, bool) or group < 1 or group % 32:
        raise config.unsupported("group_size", f"is {group!r}; supported are -1 and multiples of 32")
    return group


_READERS: dict[str, Callable[[ConfigValues], StoredQuantization]] = {
    "awq": _awq,
    "gptq": _gptq,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
}
_COMPRESSED: dict[str, Callable[[ConfigValues], StoredQuantization]] = {
    "packed": _compressed_packed,
    "int8": _compressed_int8,
    "fp8": _compressed_fp8,
}
