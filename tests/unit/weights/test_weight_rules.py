"""Names and transforms: what comes out of a GGUF file must be what the Hugging Face checkpoint had."""

from __future__ import annotations

import gguf
import pytest
import torch

from octavo.lib.errors import CheckpointError
from octavo.weights.dequantize import dequantize
from octavo.weights.names import GGUFNaming, gguf_rules, hf_rules
from octavo.weights.rules import Keep, SubtractOne, TableRules, UndoRopePermutation
from octavo.weights.source import RawDType, RawTensor


def _raw(
    data: torch.Tensor, dtype: RawDType = RawDType.F32, shape: tuple[int, ...] | None = None
) -> RawTensor:
    return RawTensor("t", "f.gguf", shape or tuple(data.shape), dtype, data)


def _permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """What llama.cpp's converter does to q and k rows: (half, element) of a head become (element, half)."""
    rows = weight.shape[0]
    out = torch.empty_like(weight)
    half = rows // heads // 2
    for head in range(heads):
        for i in range(2):
            for j in range(half):
                out[head * 2 * half + 2 * j + i] = weight[head * 2 * half + i * half + j]
    return out


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_a77_permutation_is_undone(heads: int) -> None:
    for weight in (torch.randn(64, 5), torch.randn(64)):
        raw = UndoRopePermutation(heads).apply(_raw(_permuted(weight, heads)))
        assert torch.equal(raw.data, weight)


def test_a77_permutation_turns_one_rope_into_the_other() -> None:
    """Scores of interleaved rotary on the file's rows equal scores of half rotary on ours."""
    heads, dim, width = 2, 8, 16
    query, key = torch.randn(heads * dim, width), torch.randn(heads * dim, width)
    x, y = torch.randn(width), torch.randn(width)
    angle = torch.arange(dim // 2) * 0.7 + 0.3

    def halves(v: torch.Tensor) -> torch.Tensor:
        a, b = v[:, : dim // 2], v[:, dim // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=1)

    def interleaved(v: torch.Tensor) -> torch.Tensor:
        a, b = v[:, 0::2], v[:, 1::2]
        return torch.stack(
            [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=2
        ).flatten(1)

    undo = UndoRopePermutation(heads)
    ours = halves((undo.apply(_raw(query)).data @ x).view(heads, dim)) * (
        undo.apply(_raw(key)).data @ y
    ).view(heads, dim)
    theirs = interleaved((query @ x).view(heads, dim)) * (key @ y).view(heads, dim)
    torch.testing.assert_close(ours.sum(1), theirs.sum(1))


@pytest.mark.parametrize("dtype", [RawDType.Q4_0, RawDType.Q8_0])
def test_a77_quantised_rows_move_as_they_are(dtype: RawDType) -> None:
    weight = torch.randn(32, 64)
    blocks = gguf.quants.quantize(_permuted(weight, 4).numpy(), gguf.GGMLQuantizationType[dtype.name])
    raw = UndoRopePermutation(4).apply(_raw(torch.from_numpy(blocks), dtype, (32, 64)))
    direct = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType[dtype.name])
    assert raw.dtype == dtype
    assert raw.data.numpy().tobytes() == direct.tobytes()
    assert dequantize(raw.data, dtype).shape == (32, 64)


def test_permutation_of_rows_that_heads_do_not_divide() -> None:
    with pytest.raises(CheckpointError, match="30 rows") as caught:
        UndoRopePermutation(4).apply(_raw(torch.zeros(30, 2)))
    assert (caught.value.file, caught.value.tensor) == ("f.gguf", "t")


def test_a77_only_families_that_say_so_are_permuted() -> None:
    llama = gguf_rules(GGUFNaming(rope_permuted=True), num_heads=8, num_kv_heads=2)
    qwen2 = gguf_rules(GGUFNaming(), num_heads=8, num_kv_heads=2)
    for kind in ("weight", "bias"):
        for role, heads in {"attn_q": 8, "attn_k": 2}.items():
            rule = llama.resolve(f"blk.11.{role}.{kind}")
            assert rule is not None
            assert rule.transform == UndoRopePermutation(heads)
            other = qwen2.resolve(f"blk.11.{role}.{kind}")
            assert other is not None
            assert isinstance(other.transform, Keep)
    value = llama.resolve("blk.11.attn_v.weight")
    assert value is not None
    assert isinstance(value.transform, Keep)


def test_subtracting_the_converters_one_loses_nothing() -> None:
    stored = torch.cat([torch.randn(1000).bfloat16().float() * 3 + 1, torch.linspace(-2, 60, 777) + 1])
    raw = SubtractOne().apply(_raw(stored.clone()))
    assert torch.equal(raw.data + 1, stored)
    with pytest.raises(CheckpointError, match="stored as q8_0"):
        SubtractOne().apply(_raw(torch.zeros(34, dtype=torch.uint8), RawDType.Q8_0, (32,)))


LLAMA = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
    "blk.7.attn_norm.weight": "model.layers.7.input_layernorm.weight",
    "blk.7.attn_q.weight": "model.layers.7.self_attn.q_proj.weight",
    "blk.7.attn_k.bias": "model.layers.7.self_attn.k_proj.bias",
    "blk.7.attn_v.weight": "model.layers.7.self_attn.v_proj.weight",
    "blk.7.attn_output.weight": "model.layers.7.self_attn.o_proj.weight",
    "blk.7.attn_q_norm.weight": "model.layers.7.self_attn.q_norm.weight",
    "blk.7.attn_k_norm.weight": "model.layers.7.self_attn.k_norm.weight",
    "blk.7.ffn_norm.weight": "model.layers.7.post_attention_layernorm.weight",
    "blk.7.ffn_gate.weight": "model.layers.7.mlp.gate_proj.weight",
    "blk.7.ffn_up.weight": "model.layers.7.mlp.up_proj.weight",
    "blk.123.ffn_down.weight": "model.layers.123.mlp.down_proj.weight",
}
GEMMA = LLAMA | {
    "blk.7.post_attention_norm.weight": "model.layers.7.post_attention_layernorm.weight",
    "blk.7.ffn_norm.weight": "model.layers.7.pre_feedforward_layernorm.weight",
    "blk.7.post_ffw_norm.weight": "model.layers.7.post_feedforward_layernorm.weight",
}
PHI = LLAMA | {
    "blk.7.attn_qkv.weight": "model.layers.7.self_attn.qkv_proj.weight",
    "blk.7.ffn_up.weight": "model.layers.7.mlp.gate_up_proj.weight",
}

EXPERTS = {
    "blk.7.ffn_gate_inp.weight": "model.layers.7.mlp.gate.weight",
    "blk.7.ffn_down_exps.12.weight": "model.layers.7.mlp.experts.12.down_proj.weight",
    "blk.7.ffn_gate.3.weight": "model.layers.7.mlp.experts.3.gate_proj.weight",
    "blk.7.ffn_up_shexp.weight": "model.layers.7.mlp.shared_expert.up_proj.weight",
    "blk.7.ffn_gate_inp_shexp.weight": "model.layers.7.mlp.shared_expert_gate.weight",
}


def _rules(**naming: bool) -> TableRules:
    return gguf_rules(GGUFNaming(**naming), num_heads=4, num_kv_heads=2)


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        (_rules(), LLAMA),
        (_rules(), EXPERTS),
        (_rules(norms_plus_one=True, sandwich_norms=True), GEMMA),
        (_rules(fused_gate_up=True), PHI),
    ],
    ids=["llama", "experts", "gemma", "phi"],
)
def test_gguf_names(rules: TableRules, names: dict[str, str]) -> None:
    resolved = {name: rules.resolve(name) for name in names}
    assert {name: rule and rule.target for name, rule in resolved.items()} == names


def test_gemma_norms_lose_their_one() -> None:
    rules = _rules(norms_plus_one=True, sandwich_norms=True)
    for name in GEMMA:
        rule = rules.resolve(name)
        assert rule is not None
        assert isinstance(rule.transform, SubtractOne) == name.endswith("norm.weight")


@pytest.mark.parametrize(
    "name", ["blk.0.ssm_in.weight", "blk.x.attn_q.weight", "attn_q.weight", "blk.0.1.attn_q.weight"]
)
def test_unknown_gguf_names_have_no_rule(name: str) -> None:
    assert _rules().resolve(name) is None


def test_what_may_be_left_over() -> None:
    assert _rules().may_drop("rope_freqs.weight")
    assert _rules().may_drop("lm_head.weight")
    assert not _rules().may_drop("model.norm.weight")
    assert hf_rules().may_drop("model.layers.3.self_attn.rotary_emb.inv_freq")
    assert not hf_rules().may_drop("model.layers.3.self_attn.q_proj.weight")


def test_hf_renames_apply_in_order() -> None:
    rules = hf_rules(((r"^language_model\.", ""), (r"^model\.final_norm\.", "model.norm.")), (r"vision\..*",))
    rule = rules.resolve("language_model.model.final_norm.weight")
    assert rule is not None
    assert rule.target == "model.norm.weight"
    assert rules.may_drop("vision.patch.weight")
