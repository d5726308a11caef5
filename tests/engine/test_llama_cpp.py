"""Held to llama.cpp, on real weights: the same greedy tokens, the same perplexity.

The golden files are llama.cpp's own output (benchmarks/compare/make_llama_goldens.py says how). Float sums in another order
may tip a near tie, and after that the texts part: each difference must be such a tie.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests import assets
from tests.engine.stepping import Answer, Stepper, load, threads

from octavo.models.decoder import Decoder
from octavo.types.sampling_params import SamplingParams

GOLDEN = Path(__file__).parents[1] / "golden"
NEAR_TIE = 1e-2


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def smollm2() -> Decoder:
    return load(assets.smollm2_gguf())


@pytest.fixture(scope="module")
def gemma3() -> Decoder:
    return load(assets.gemma3_gguf())


def continue_all(model: Decoder, answers: list[dict[str, Any]]) -> dict[str, Answer]:
    stepper = Stepper(model, num_blocks=2048, max_num_seqs=32)
    for index, answer in enumerate(answers):
        sampling = SamplingParams(temperature=0.0, max_tokens=len(answer["output"]), logprobs=2)
        stepper.add(str(index), answer["prompt"], sampling)
    with threads(2):
        return stepper.run()


def check_continuations(model: Decoder, name: str) -> None:
    expected = golden(name)["answers"]
    assert len(expected) == 100
    ours = continue_all(model, expected)
    unexplained, same = [], 0
    for index, answer in enumerate(expected):
        found = ours[str(index)]
        if found.token_ids == answer["output"]:
            same += 1
            continue
        place = next(
            i
            for i, pair in enumerate(zip(found.token_ids, answer["output"], strict=True))
            if pair[0] != pair[1]
        )
        _, best, second = found.logprobs[place].logprobs
        print(
            f"prompt {index} parts at token {place}: gap here {best - second:.5f}, there {answer['gaps'][place]:.5f}"
        )
        if best - second >= NEAR_TIE:
            unexplained.append(index)
    print(f"{name}: {same} of {len(expected)} prompts identical")
    assert unexplained == []
    assert same >= 95


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
    theirs = golden(name)["perplexity"]
    ours = perplexity(model, theirs["token_ids"], theirs["chunks"], theirs["context"], bos)
    print(
        f"{name}: perplexity {ours:.4f}, llama.cpp {theirs['value']:.4f} ({ours / theirs['value'] - 1:+.4%})"
    )
    assert ours == pytest.approx(theirs["value"], rel=5e-3)


def test_the_capital_of_france(smollm2: Decoder) -> None:
    answers = continue_all(smollm2, [{"prompt": [504, 3575, 282, 4649, 314], "output": [0] * 8}])
    assert answers["0"].token_ids == [7042, 30, 198, 198, 504, 1797, 1918, 553]


def test_smollm2_continuations(smollm2: Decoder) -> None:
    check_continuations(smollm2, "smollm2-q4_1")


@pytest.mark.slow
def test_smollm2_perplexity(smollm2: Decoder) -> None:
    check_perplexity(smollm2, "smollm2-q4_1", bos=None)


@pytest.mark.slow
def test_gemma3_continuations(gemma3: Decoder) -> None:
    check_continuations(gemma3, "gemma3-270m-q4_k_m")


@pytest.mark.slow
def test_gemma3_perplexity(gemma3: Decoder) -> None:
    check_perplexity(gemma3, "gemma3-270m-q4_k_m", bos=2)
