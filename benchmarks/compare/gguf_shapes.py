"""A shape as a GGUF file with random weights, quantised as llama.cpp would mix the types.

The blocks are drawn as bytes, with scales that give the weights the deviation of a fresh model: nothing is quantised, so a
file of a gigabyte takes seconds. Layouts of the blocks: ggml's `ggml-common.h`; the mix of Q4_K_M: `llama-quant.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from benchmarks.compare.shapes import DEVIATION, Shape, tensor_sizes

Blocks = npt.NDArray[np.uint8]

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}


def write(shape: Shape, kind: str, folder: Path, vocabulary_of: Path) -> Path:
    """The shape in a file; written if it is not there yet.

    Args:
        kind: "Q4_K_M" or "Q8_0".
        vocabulary_of: A GGUF file whose tokenizer is taken over and padded.
    """
    target = folder / f"{shape.name}-{kind}.gguf"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        _write(shape, kind, partial, vocabulary_of)
        partial.rename(target)
    return target


def _write(shape: Shape, kind: str, target: Path, vocabulary_of: Path) -> None:
    writer = gguf.GGUFWriter(target, "llama", use_temp_file=True)
    _add_sizes(writer, shape, kind)
    _add_tokenizer(writer, gguf.GGUFReader(vocabulary_of), shape.vocab_size)
    rng = np.random.default_rng(0)
    for name, size in tensor_sizes(shape).items():
        _add_tensor(writer, _gguf_name(name), size, _type_of(name, kind, shape), rng)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: gguf.GGUFWriter, shape: Shape, kind: str) -> None:
    file_types = {"Q4_K_M": gguf.LlamaFileType.MOSTLY_Q4_K_M, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
    writer.add_name(f"{shape.name} with random weights")
    writer.add_file_type(file_types[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab_size)
    if shape.num_local_experts:
        writer.add_expert_count(shape.num_local_experts)
        writer.add_expert_used_count(shape.num_experts_per_tok)


def _add_tokenizer(writer: gguf.GGUFWriter, source: gguf.GGUFReader, vocab_size: int) -> None:
    """The source's tokenizer, with unused tokens up to the size."""
    padding = {
        "tokenizer.ggml.tokens": [f"<unused_{number}>" for number in range(vocab_size)],
        "tokenizer.ggml.token_type": [int(gguf.TokenType.UNUSED)] * vocab_size,
    }
    for field in source.fields.values():
        if field.name.startswith("tokenizer."):
            value = field.contents()
            if field.name in padding:
                value = [*value, *padding[field.name][len(value) :]]
            element = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, field.types[0], sub_type=element)


def _gguf_name(name: str) -> str:
    part = name.removesuffix(".weight")
    if part.startswith("model.layers."):
        _, _, layer, rest = part.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.weight"
    return f"{NAMES[part]}.weight"


def _type_of(name: str, kind: str, shape: Shape) -> gguf.GGMLQuantizationType:
    """llama.cpp gives the head, and of half the layers the values and the down projection, six bits instead of four.

    Beside eight experts keys and values are small, and get eight bits, the attention's output five.
    """
    if "norm" in name or "mlp.gate." in name:
        return gguf.GGMLQuantizationType.F32
    if kind == "Q8_0" or (shape.num_local_experts == 8 and ("k_proj" in name or "v_proj" in name)):
        return gguf.GGMLQuantizationType.Q8_0
    if shape.num_local_experts == 8 and "o_proj" in name:
        return gguf.GGMLQuantizationType.Q5_K
    six = "embed_tokens" in name
    if "v_proj" in name or "down_proj" in name:
        six = _more_bits(int(name.split(".")[2]), shape.num_hidden_layers)
    return gguf.GGMLQuantizationType.Q6_K if six else gguf.GGMLQuantizationType.Q4_K


def _more_bits(layer: int, layers: int) -> bool:
    """The first and the last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def _add_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    size: tuple[int, ...],
    kind: gguf.GGMLQuantizationType,
    rng: np.random.Generator,
) -> None:
    if kind is gguf.GGMLQuantizationType.F32:
        values = np.ones(size) if len(size) == 1 else rng.normal(0, DEVIATION, size)
        writer.add_tensor(name, values.astype(np.float32))
        return
    block_size, _ = gguf.GGML_QUANT_SIZES[kind]
    blocks = DRAW[kind](int(np.prod(size)) // block_size, rng)
    writer.add_tensor(name, blocks.reshape(*size[:-1], -1), raw_dtype=kind)


def _q8_0(count: int, rng: np.random.Generator) -> Blocks:
    """A float16 scale and 32 integers, whose root mean square is 73.9."""
    return np.concatenate([_float16(count, DEVIATION / 73.9), _bytes(rng, count, 32)], axis=1)


def _q4_k(count: int, rng: np.random.Generator) -> Blocks:
    """Two float16 scales, twelve bytes of scales and minima, 256 nibbles.

    A weight is `d * scale * nibble - dmin * minimum`. With uniform bytes the mean is zero at `dmin = 7.5 d`, and the deviation
    is 259 `d`.
    """
    unit = DEVIATION / 259
    return np.concatenate(
        [_float16(count, unit), _float16(count, 7.5 * unit), _bytes(rng, count, 140)], axis=1
    )


def _q5_k(count: int, rng: np.random.Generator) -> Blocks:
    """As `_q4_k`, with 32 bytes of fifth bits: the mean is zero at `dmin = 15.5 d`, and the deviation is 527 `d`."""
    unit = DEVIATION / 527
    return np.concatenate(
        [_float16(count, unit), _float16(count, 15.5 * unit), _bytes(rng, count, 172)], axis=1
    )


def _q6_k(count: int, rng: np.random.Generator) -> Blocks:
    """192 bytes of six-bit integers, 16 signed scales, a float16 scale.

    The scales stay within -16 and 15, so that the float16 is not too small to be exact: the deviation is 171 of it.
    """
    scales = rng.integers(-16, 16, (count, 16), np.int8).view(np.uint8)
    return np.concatenate([_bytes(rng, count, 192), scales, _float16(count, DEVIATION / 171)], axis=1)


def _bytes(rng: np.random.Generator, count: int, length: int) -> Blocks:
    return np.frombuffer(rng.bytes(count * length), np.uint8).reshape(count, length)


def _float16(count: int, value: float) -> Blocks:
    return np.full((count, 1), value, np.float16).view(np.uint8)


DRAW: dict[gguf.GGMLQuantizationType, Callable[[int, np.random.Generator], Blocks]] = {
    gguf.GGMLQuantizationType.Q8_0: _q8_0,
    gguf.GGMLQuantizationType.Q4_K: _q4_k,
    gguf.GGMLQuantizationType.Q5_K: _q5_k,
    gguf.GGMLQuantizationType.Q6_K: _q6_k,
}
