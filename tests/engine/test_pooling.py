"""Vectors against `transformers` and a pooling made by hand, and the same bits however prompts are cut, batched or cached."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.engine import pooling_models as models
from tests.models.gguf_export import export
from tokenizers import Regex
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing

from octavo import LLM, EngineArgs, PoolingParams, SamplingParams
from octavo.lib.errors import CheckpointError, ConfigError, InvalidRequestError
from octavo.types.pooling_outputs import PoolingRequestOutput
from octavo.worker.recorded_model import RecordedModel

LENGTHS = (1, 2, 31, 32, 33, 64, 77, 150, 40, 5)


def prompts(seed: int = 3) -> list[list[int]]:
    """Random ones of mixed lengths; the last two share most of their beginning with the longest."""
    draw = np.random.default_rng(seed)
    found: list[list[int]] = [draw.integers(3, 301, count).tolist() for count in LENGTHS]
    longest = found[7]
    return [*found, longest[:100] + found[4], [*longest[:149], 9]]


def engine(folder: Path, **settings: Any) -> LLM:
    return LLM(
        str(folder), **{"skip_tokenizer_init": True, "threads": 1, "num_blocks_override": 80, **settings}
    )


def vectors(llm: LLM, texts: Sequence[list[int]], **fields: Any) -> list[bytes]:
    outputs = llm.encode(list(texts), PoolingParams(**fields), use_tqdm=False)
    return [output.outputs.data.tobytes() for output in outputs]


def by_hand(states: torch.Tensor, kind: str) -> torch.Tensor:
    pooled = {"LAST": states[-1], "CLS": states[0], "MEAN": states.mean(0)}[kind]
    return torch.nn.functional.normalize(pooled, dim=0)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.saved(tmp_path_factory.mktemp("embedder"), "Qwen3Model", head_dim=16)


@pytest.fixture(scope="module")
def llm(embedder: Path) -> Iterator[LLM]:
    with engine(embedder) as made:
        yield made


@pytest.mark.parametrize("kind", ["LAST", "MEAN", "CLS"])
@pytest.mark.parametrize("architecture", ["Qwen3Model", "LlamaForCausalLM"])
def test_embeddings_are_those_of_transformers(kind: str, architecture: str, tmp_path: Path) -> None:
    """Also of a checkpoint whose tensors have no prefix, and of one with a head, which is left out."""
    folder = models.saved(tmp_path, architecture)
    with engine(folder, runner="pooling", pooler_config={"pooling_type": kind}) as llm:
        for prompt, output in zip(prompts(), llm.embed(prompts(), use_tqdm=False), strict=True):
            expected = by_hand(models.hidden_states(architecture, prompt), kind)
            assert np.allclose(output.outputs.embedding, expected.numpy(), atol=1e-5)
            assert output.prompt_token_ids == prompt


@pytest.mark.parametrize("kind", ["LAST", "MEAN", "CLS"])
def test_a90_a_vector_has_the_same_bits_alone_in_a_batch_in_chunks_and_from_the_cache(
    kind: str, embedder: Path
) -> None:
    def run(**settings: Any) -> list[bytes]:
        with engine(embedder, pooler_config={"pooling_type": kind}, **settings) as llm:
            first = vectors(llm, prompts())
            assert vectors(llm, prompts()) == first  # now with every page that may be read from the cache
            return first

    with engine(embedder, pooler_config={"pooling_type": kind}, enable_prefix_caching=False) as plain:
        alone = [vectors(plain, [prompt])[0] for prompt in prompts()]
    assert run() == alone
    assert run(max_num_batched_tokens=7, max_num_seqs=5) == alone
    assert run(max_num_batched_tokens=256, enforce_eager=True, block_size=16) == alone
    assert run(num_blocks_override=9, max_num_seqs=8) == alone  # preemptions


def test_the_prefix_cache_is_read_where_the_last_token_says_everything(embedder: Path) -> None:
    for kind, cached in (("LAST", 128), ("MEAN", 0)):
        with engine(embedder, pooler_config={"pooling_type": kind}) as llm:
            vectors(llm, [prompts()[7]])
            (output,) = llm.encode([prompts()[7]], use_tqdm=False)
            assert output.num_cached_tokens == cached
            fresh = PoolingParams(skip_reading_prefix_cache=True)
            assert llm.encode([prompts()[7]], fresh, use_tqdm=False)[0].num_cached_tokens == 0


def test_a_sliding_window_pools_the_same_bits(tmp_path: Path) -> None:
    """Pages that fell out of the window are given back while a prompt is still being pooled."""
    window = {"head_dim": 16, "sliding_window": 24}
    folder = models.saved(tmp_path, "Gemma3ForCausalLM", **window)
    for kind in ("LAST", "MEAN"):
        found = []
        for tokens, seqs in ((2048, 256), (48, 4)):
            settings = {"max_num_batched_tokens": tokens, "max_num_seqs": seqs, "block_size": 16}
            with engine(folder, runner="pooling", pooler_config={"pooling_type": kind}, **settings) as llm:
                found += [vectors(llm, prompts()), vectors(llm, prompts())]
        assert all(one == found[0] for one in found)
        expected = by_hand(models.hidden_states("Gemma3ForCausalLM", prompts()[7], **window), kind)
        assert np.allclose(np.frombuffer(found[0][7], np.float32), expected.numpy(), atol=1e-5)


def test_rounded_weights_leave_the_classifier_as_it_is(tmp_path: Path) -> None:
    folder = models.saved(tmp_path, "LlamaForSequenceClassification", num_labels=2)
    raw = PoolingParams(use_activation=False)
    found = []
    for quantization in (None, "int8"):
        with engine(folder, quantization=quantization) as llm:
            found.append(llm.classify(prompts()[7], raw, use_tqdm=False)[0].outputs.probs)
    assert np.allclose(*found, atol=0.1 * float(np.abs(found[0]).max()))


def test_embeddings_beside_answers_cost_neither_anything(tmp_path: Path) -> None:
    """A model that generates gives embeddings too where it is told how, and in one batch with answers."""
    folder = models.saved(tmp_path, "LlamaForCausalLM")
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    with engine(
        folder, pooler_config={"pooling_type": "MEAN"}, max_num_batched_tokens=40, max_num_seqs=6
    ) as llm:
        answers = [output.outputs[0].token_ids for output in llm.generate(prompts(), greedy, use_tqdm=False)]
        embedded = vectors(llm, prompts())
        core = llm.llm_engine
        for index, prompt in enumerate(prompts()):
            core.add_request(f"answer {index}", prompt, greedy)
            core.add_request(f"vector {index}", prompt, PoolingParams())
        found: dict[str, Any] = {}
        while core.has_unfinished_requests():
            for output in core.step():
                if isinstance(output, PoolingRequestOutput):
                    found[output.request_id] = output.outputs.data.tobytes()
                elif output.finished:
                    found[output.request_id] = output.outputs[0].token_ids
        assert [found[f"answer {index}"] for index in range(len(LENGTHS) + 2)] == answers
        assert [found[f"vector {index}"] for index in range(len(LENGTHS) + 2)] == embedded
    with engine(folder) as plain, pytest.raises(InvalidRequestError, match="--runner pooling"):
        plain.embed([prompts()[0]], use_tqdm=False)


def test_a_pooled_model_does_not_generate(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="does not generate text: it is served for embed"):
        llm.generate([[1, 2]], SamplingParams(), use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="does not classify: it is served for embed"):
        llm.classify([[1, 2]], use_tqdm=False)


def test_a_prompt_may_fill_the_context_and_no_more(llm: LLM) -> None:
    longest = [5] * 512
    assert llm.encode([longest], use_tqdm=False)[0].prompt_token_ids == longest
    with pytest.raises(InvalidRequestError, match=r"513 tokens.*512") as refused:
        llm.encode([[*longest, 5]], use_tqdm=False)
    assert refused.value.param == "prompt"
    (cut,) = llm.encode([[*longest, 5, 6]], use_tqdm=False, truncate_prompt_tokens=-1)
    assert cut.prompt_token_ids == longest
    assert llm.encode([[7, 8, 9]], use_tqdm=False, truncate_prompt_tokens=2)[0].prompt_token_ids == [7, 8]
    with pytest.raises(InvalidRequestError, match="512"):
        llm.encode([[7]], use_tqdm=False, truncate_prompt_tokens=513)


@pytest.mark.parametrize(
    "fields",
    [
        {"dimensions": 0},
        {"dimensions": True},
        {"dimensions": 1.5},
        {"task": "sing"},
        {"use_activation": 1},
        {"truncate_prompt_tokens": -2},
        {"truncate_prompt_tokens": 2**40},
    ],
)
def test_bad_parameters_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        PoolingParams(**fields)
    assert refused.value.param in fields


def test_matryoshka_cuts_then_normalises(embedder: Path) -> None:
    with engine(embedder, pooler_config={"matryoshka_dimensions": [16, 32], "dimensions": 32}) as llm:
        raw = np.frombuffer(vectors(llm, prompts()[2:3], use_activation=False)[0], np.float32)
        assert len(raw) == 32
        (short,) = llm.embed(prompts()[2:3], PoolingParams(dimensions=16), use_tqdm=False)
        assert np.allclose(short.outputs.embedding, raw[:16] / np.linalg.norm(raw[:16]), atol=1e-6)
        assert len(vectors(llm, prompts()[:1], dimensions=64)[0]) == 256
        for size, match in ((17, "16, 32"), (65, "has 64 numbers")):
            with pytest.raises(InvalidRequestError, match=match):
                vectors(llm, [[1]], dimensions=size)


def test_dimensions_are_refused_where_the_model_was_not_trained_for_fewer(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="not trained for fewer than 64"):
        vectors(llm, [[1]], dimensions=32)
    assert vectors(llm, [[1]], dimensions=64) == vectors(llm, [[1]])


@pytest.mark.parametrize("architecture", ["LlamaForSequenceClassification", "Qwen3ForSequenceClassification"])
@pytest.mark.parametrize(
    ("settings", "activation"),
    [
        ({"num_labels": 3}, lambda x: x.softmax(-1)),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, torch.sigmoid),
        ({"num_labels": 1}, torch.sigmoid),
        ({"num_labels": 1, "problem_type": "regression"}, lambda x: x),
    ],
)
def test_classifiers(
    architecture: str,
    settings: dict[str, Any],
    activation: Callable[[torch.Tensor], torch.Tensor],
    tmp_path: Path,
) -> None:
    folder = models.saved(tmp_path, architecture, **settings)
    with engine(folder, max_num_batched_tokens=64, max_num_seqs=8) as llm:
        found = llm.classify(prompts(), use_tqdm=False)
        raw = llm.classify(prompts(), PoolingParams(use_activation=False), use_tqdm=False)
    for prompt, output, plain in zip(prompts(), found, raw, strict=True):
        with torch.no_grad():
            logits = models.model(architecture, **settings)(torch.tensor([prompt])).logits[0]
        assert np.allclose(output.outputs.probs, activation(logits), atol=1e-5)
        assert np.allclose(plain.outputs.probs, logits, atol=1e-4)


def test_a_classifier_without_its_matrix_is_refused_by_the_tensors_name(tmp_path: Path) -> None:
    folder = models.saved(tmp_path, "LlamaForCausalLM")
    with pytest.raises(CheckpointError, match=r"score\.weight"):
        engine(folder, convert="classify")


@pytest.mark.parametrize("old", [True, False])
def test_sentence_transformers_modules_decide(old: bool, tmp_path: Path) -> None:
    """Both forms of the files; a projection with tanh between; no Normalize means none."""
    folder = models.saved(tmp_path, "LlamaForCausalLM")
    pooling = (
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
        if old
        else {"pooling_mode": "mean"}
    )
    models.add_modules(folder, pooling, "Dense", old=old)
    dense = folder / "2_Dense"
    dense.mkdir()
    torch.manual_seed(1)
    weight, bias = torch.randn(24, 64) / 8, torch.randn(24)
    save_file({"linear.weight": weight, "linear.bias": bias}, dense / "model.safetensors")
    settings = {"in_features": 64, "out_features": 24, "bias": True}
    (dense / "config.json").write_text(
        json.dumps({**settings, "activation_function": "torch.nn.modules.activation.Tanh"})
    )
    with engine(folder) as llm:
        for prompt, output in zip(prompts(), llm.embed(prompts(), use_tqdm=False), strict=True):
            mean = models.hidden_states("LlamaForCausalLM", prompt).mean(0)
            expected = torch.tanh(weight @ mean + bias)
            assert np.allclose(output.outputs.embedding, expected, atol=1e-5)


def test_module_files_limit_the_length_unless_the_user_asks_for_more(tmp_path: Path) -> None:
    folder = models.add_modules(
        models.saved(tmp_path, "LlamaForCausalLM"), {"pooling_mode": "mean"}, "Normalize"
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 100, "do_lower_case": false}')
    found = []
    for asked in (None, 200):
        config = EngineArgs(
            model=str(folder), skip_tokenizer_init=True, max_model_len=asked, max_num_seqs=8
        ).create_engine_config()
        found.append(config.model.max_model_len)
    assert found == [100, 200]
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(CheckpointError, match="do_lower_case"):
        engine(folder)


@pytest.mark.parametrize(
    ("pooling", "more", "says"),
    [
        ({"pooling_mode": "max"}, (), "max"),
        ({"pooling_mode_max_tokens": True}, (), "pooling_mode_max_tokens"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True}, (), "must be one of"),
        ({}, (), "must be one of"),
        ({"pooling_mode": "mean", "layer": 3}, (), "layer"),
        ({"pooling_mode": "mean", "include_prompt": False}, (), "include_prompt"),
        ({"pooling_mode": "mean"}, ("WordWeights",), "WordWeights"),
        ({"pooling_mode": "mean"}, ("Normalize", "Normalize"), "in this order"),
    ],
)
def test_an_unknown_pooling_is_an_error_that_names_it(
    pooling: dict[str, Any], more: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    folder = models.add_modules(models.saved(tmp_path, "LlamaForCausalLM"), pooling, *more)
    with pytest.raises(CheckpointError, match=says):
        engine(folder)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pooler_config": {"pooling_typ": "MEAN"}}, "pooling_typ"),
        ({"pooler_config": {"pooling_type": "STEP"}}, "STEP"),
        ({"pooler_config": {"dimensions": 65}}, "65"),
        ({"pooler_config": {"use_activation": True, "normalize": False}}, "contradict"),
        ({"pooler_config": "[1]"}, "JSON object"),
        ({"runner": "generate"}, "no language head"),
        ({"convert": "none"}, "not pooled"),
        ({"runner": "draft"}, "runner"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], says: str, embedder: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        engine(embedder, **settings)


def test_a_broken_model_fails_the_request_alone(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = models.saved(tmp_path, "Qwen3Model")
    tensors = load_file(folder / "model.safetensors")
    tensors["embed_tokens.weight"][9] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    with engine(folder) as llm:
        core = llm.llm_engine
        core.add_request("good", [1, 2, 3], PoolingParams())
        core.add_request("bad", [1, 9, 3], PoolingParams())
        found = [output for _ in range(3) for output in core.step()]
        errors = {output.request_id: output.error for output in found}
    assert errors["good"] is None
    assert "not finite" in str(errors["bad"])


def test_no_head_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooled model has none; one that generates too leaves it out for vectors."""
    folder = models.saved(tmp_path, "LlamaForCausalLM")
    with (
        engine(folder, runner="pooling") as pooled,
        engine(folder, pooler_config={"pooling_type": "LAST"}) as both,
    ):
        head = 4 * 301 * 64
        weights = [made.llm_engine.client.core.model.weight_bytes for made in (pooled, both)]  # type: ignore[attr-defined]
        assert weights[1] - weights[0] >= head
        monkeypatch.setattr(RecordedModel, "compute_logits", _refuse_to_compute)
        assert vectors(pooled, prompts()) == vectors(both, prompts())


def _refuse_to_compute(*_: object) -> torch.Tensor:
    raise AssertionError("a head was computed")


def test_gguf_files_of_embedders_say_how_they_pool(tmp_path: Path) -> None:
    made = models.model("LlamaForCausalLM")
    path = tmp_path / "model.gguf"
    export(made, path, gguf.GGMLQuantizationType.F32, pooling_type=1)
    with engine(path) as llm:
        for prompt, output in zip(prompts()[:4], llm.embed(prompts()[:4], use_tqdm=False), strict=True):
            expected = by_hand(models.hidden_states("LlamaForCausalLM", prompt), "MEAN")
            assert np.allclose(output.outputs.embedding, expected.numpy(), atol=1e-5)
    export(made, path, gguf.GGMLQuantizationType.F32, pooling_type=4)
    with pytest.raises(CheckpointError, match="pooling_type"):
        engine(path)


def with_tokenizer(folder: Path) -> Path:
    """A tokenizer of letters beside a checkpoint, which ends each text with an EOS (id 2)."""
    letters = {chr(97 + index): 10 + index for index in range(26)}
    rust = RustTokenizer(WordLevel({"<unk>": 1, "</s>": 2, **letters}, unk_token="<unk>"))
    rust.pre_tokenizer = Split(Regex("."), "isolated")
    rust.add_special_tokens(["</s>"])
    rust.post_processor = TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    rust.save(str(folder / "tokenizer.json"))
    return folder


def test_texts_are_cut_before_what_the_tokenizer_adds(tmp_path: Path) -> None:
    """An EOS that the pooling looks at stays."""
    folder = with_tokenizer(models.saved(tmp_path, "Qwen3Model", head_dim=16))
    with engine(folder, skip_tokenizer_init=False) as llm:
        whole, cut = (
            llm.embed("abcde", use_tqdm=False, truncate_prompt_tokens=size)[0].prompt_token_ids
            for size in (None, 4)
        )
        assert whole == [10, 11, 12, 13, 14, 2]
        assert cut == [10, 11, 12, 2]


def test_scores_by_cosine_and_by_a_cross_encoder(tmp_path: Path) -> None:
    texts = ["abc", "xyz", "abc"]
    folder = with_tokenizer(models.saved(tmp_path / "embed", "Qwen3Model", head_dim=16))
    with engine(folder, skip_tokenizer_init=False) as llm:
        one, two, same = (np.array(e.outputs.embedding) for e in llm.embed(texts, use_tqdm=False))
        found = [output.outputs.score for output in llm.score("abc", texts, use_tqdm=False)]
        assert found == pytest.approx([float(one @ one), float(one @ two), float(one @ same)], abs=1e-6)
        with pytest.raises(InvalidRequestError, match="2 texts and data_2 3"):
            llm.score(["a", "b"], texts)
    settings = {"num_labels": 1}
    folder = with_tokenizer(models.saved(tmp_path / "cross", "LlamaForSequenceClassification", **settings))
    with engine(folder, skip_tokenizer_init=False) as llm:
        (pair,) = llm.score("abc", "de", use_tqdm=False)
        assert pair.prompt_token_ids == [10, 11, 12, 2, 13, 14, 2]
        reference = models.model("LlamaForSequenceClassification", **settings)
        with torch.no_grad():
            logit = reference(torch.tensor([pair.prompt_token_ids])).logits[0, 0]
        assert pair.outputs.score == pytest.approx(float(torch.sigmoid(logit)), abs=1e-5)
