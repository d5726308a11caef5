"""Held to llama.cpp, on real weights: the same greedy tokens, the same perplexity. tests/golden/README.md has the why.

Float sums in another order may tip a near tie, and after that the texts part: with float32 weights each difference must be
such a tie. With quantised weights rounding amplifies the last bit, so the measure is how far llama.cpp is from itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import assets
from tests.engine.paris import FRANCE, PARIS, PARIS_IN_FLOAT32
from tests.engine.stepping import Answer, Stepper, load, threads

from octavo.models.decoder import Decoder
from octavo.quantization import StoredTensor
from octavo.types.sampling_params import SamplingParams
from octavo.weights.dequantize import to_float32
from octavo.weights.source import RawTensor

GOLDEN = Path(__file__).parents[1] / "golden"
NEAR_TIE = 1e-2
SMOLLM2 = "smollm2-q4_1"
GEMMA3 = "gemma3-270m-q4_k_m"
PATHS = {SMOLLM2: assets.smollm2_gguf, GEMMA3: assets.gemma3_gguf}


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def load_expanded(name: str) -> Decoder:
    """The model with every weight in float32."""

    def stored(raw: RawTensor) -> StoredTensor:
        return StoredTensor(to_float32(raw), "f32")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("octavo.models.decoder.stored_tensor", stored)
        return load(PATHS[name]())


@pytest.fixture(scope="module")
def smollm2() -> Decoder:
    return load(PATHS[SMOLLM2]())


@pytest.fixture(scope="module")
def gemma3() -> Decoder:
    return load(PATHS[GEMMA3]())


def continue_all(model: Decoder, prompts: list[list[int]], lengths: list[int]) -> list[Answer]:
    stepper = Stepper(model, num_blocks=2048, max_num_seqs=34)
    for index, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        stepper.add(str(index), prompt, SamplingParams(temperature=0.0, max_tokens=length, logprobs=2))
    with threads(2):
        answers = stepper.run()
    return [answers[str(index)] for index in range(len(prompts))]


@dataclass
class Comparison:
    """One prompt: how much the gap of the two best logits differs at each token up to the first other token."""

    gap_changes: list[float]
    parting_gap: float | None
    """Our gap at the first other token; None: no token differs."""


def compare(answer: Answer, expected: dict[str, Any]) -> Comparison:
    changes: list[float] = []
    for ours, entry, theirs, gap in zip(
        answer.token_ids, answer.logprobs, expected["tokens"], expected["gaps"], strict=True
    ):
        our_gap = entry.logprobs[1] - entry.logprobs[2]
        changes.append(abs(our_gap - gap) if ours == theirs else our_gap + gap)
        if ours != theirs:
            return Comparison(changes, our_gap)
    return Comparison(changes, None)


def compare_all(model: Decoder, name: str, kind: str, count: int = 100) -> list[Comparison]:
    data = golden(name)
    expected = data[kind][:count]
    answers = continue_all(model, data["prompts"][:count], [len(one["tokens"]) for one in expected])
    found = [compare(answer, one) for answer, one in zip(answers, expected, strict=True)]
    print(f"{name}, {kind}: {num_same(found)} of {count} identical, mean gap change {mean_change(found):.2e}")
    return found


def num_same(found: list[Comparison]) -> int:
    return sum(one.parting_gap is None for one in found)


def mean_change(found: list[Comparison]) -> float:
    return float(np.mean([change for one in found for change in one.gap_changes]))


def check_float32(name: str, count: int = 100) -> None:
    found = compare_all(load_expanded(name), name, "float32_weights", count)
    partings = [one.parting_gap for one in found if one.parting_gap is not None]
    assert max(partings, default=0.0) < NEAR_TIE
    assert num_same(found) >= 0.95 * count
    assert mean_change(found) < 3e-3  # gemma: 1e-3, as llama.cpp looks its GELU up in a float16 table


def check_quantized(model: Decoder, name: str) -> None:
    found = compare_all(model, name, "quantized_weights")
    spread = golden(name)["quantized_spread"]
    assert mean_change(found) < 1.25 * spread["mean_gap_change"]
    assert num_same(found) >= spread["identical"] - 10  # two standard deviations of a count near 50 of 100


def perplexity(model: Decoder, token_ids: list[int], chunks: int, context: int, bos: int | None) -> float:
    """As llama-perplexity computes it: chunks of `context` tokens, each beginning with BOS where the model has one,
    counted from the second half on."""
    stepper = Stepper(model, num_blocks=256, max_num_seqs=4)
    for index in range(chunks):
        ids = list(token_ids[index * context : (index + 1) * context])
        if bos is not None:
            ids[0] = bos
        stepper.add(str(index), ids, SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0))
    with threads(2):
        answers = stepper.run()
    counted = [
        item.logprobs[0] for answer in answers.values() for item in answer.prompt_logprobs[context // 2 :]
    ]
    assert len(counted) == chunks * (context - context // 2 - 1)
    assert len(counted) >= 4000
    return math.exp(-math.fsum(counted) / len(counted))


def check_perplexity(model: Decoder, name: str, bos: int | None) -> None:
    data = golden(name)
    theirs = data["perplexity"]
    ours = perplexity(model, data["text"], theirs["chunks"], theirs["context"], bos)
    print(
        f"{name}: perplexity {ours:.4f}, llama.cpp {theirs['value']:.4f} ({ours / theirs['value'] - 1:+.4%})"
    )
    assert ours == pytest.approx(theirs["value"], rel=5e-3)


def test_the_capital_of_france(smollm2: Decoder) -> None:
    (answer,) = continue_all(smollm2, [FRANCE["prompt_token_ids"]], [8])
    assert answer.token_ids == PARIS


def test_the_capital_of_france_in_float32() -> None:
    (answer,) = continue_all(load_expanded(SMOLLM2), [FRANCE["prompt_token_ids"]], [8])
    assert answer.token_ids == PARIS_IN_FLOAT32


def test_smollm2_with_float32_weights() -> None:
    check_float32(SMOLLM2, count=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", [SMOLLM2, GEMMA3])
def test_all_prompts_with_float32_weights(name: str) -> None:
    check_float32(name)


def test_smollm2_as_it_is(smollm2: Decoder) -> None:
    check_quantized(smollm2, SMOLLM2)


@pytest.mark.slow
def test_gemma3_as_it_is(gemma3: Decoder) -> None:
    check_quantized(gemma3, GEMMA3)


@pytest.mark.slow
def test_smollm2_perplexity(smollm2: Decoder) -> None:
    check_perplexity(smollm2, SMOLLM2, bos=None)


@pytest.mark.slow
def test_gemma3_perplexity(gemma3: Decoder) -> None:
    check_perplexity(gemma3, GEMMA3, bos=2)
