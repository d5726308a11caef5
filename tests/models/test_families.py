"""The one model test: every family, tiny and random, against `transformers` in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from octavo.models.decoder import Decoder
from tests.models import tiny
from tests.models.paged import PagedRunner, generate

TOLERANCE = 1e-4
NEW_TOKENS = 64
PROMPTS = [tiny.random_tokens(count, seed=count) for count in (19, 5, 30, 1)]
# Prompt and answer together stay on the short side of LongRoPE, where `transformers` would switch in mid-sequence.
SHORT = 96


@pytest.fixture(scope="module", params=tiny.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def checkpoint(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny.reference(name).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def decoder(checkpoint: Path) -> Decoder:
    return tiny.load(checkpoint, SHORT)


def check(name: str, tokens: list[int], logits: torch.Tensor, prompt_length: int) -> None:
    """The logits agree, and each generated token is the one that `transformers` would choose after the same tokens.

    By induction its greedy answer is then the same.
    """
    expected = tiny.reference_logits(tiny.reference(name), tokens[: len(logits)])
    assert (logits - expected).abs().max() < TOLERANCE
    assert tokens[prompt_length:] == expected[prompt_length - 1 :].argmax(dim=-1).tolist()


@pytest.mark.parametrize("chunk", [0, 7])
def test_one_sequence(name: str, decoder: Decoder, chunk: int) -> None:
    """Whole and chunked prefill, then decode."""
    [tokens], [logits] = generate(decoder, PROMPTS[:1], NEW_TOKENS, chunk)
    assert len(tokens) == len(PROMPTS[0]) + NEW_TOKENS
    check(name, tokens, logits, len(PROMPTS[0]))


@pytest.mark.parametrize("chunk", [0, 7])
def test_batch(name: str, decoder: Decoder, chunk: int) -> None:
    """Sequences of different lengths in every step, some prefilling while others decode."""
    answers, logits = generate(decoder, PROMPTS, NEW_TOKENS, chunk)
    for prompt, tokens, rows in zip(PROMPTS, answers, logits, strict=True):
        assert len(tokens) == len(prompt) + NEW_TOKENS
        check(name, tokens, rows, len(prompt))


def test_recording(name: str, decoder: Decoder) -> None:
    """A replayed step program gives the bits of the model that is walked through op by op, whatever the batch."""
    walked, logits = generate(decoder, PROMPTS, 8, chunk=7)
    replayed, logits_replayed = generate(decoder, PROMPTS, 8, chunk=7, recorded=True)
    assert replayed == walked
    for rows, rows_replayed in zip(logits, logits_replayed, strict=True):
        assert torch.equal(rows, rows_replayed)


def test_long_prompt(name: str, checkpoint: Path) -> None:
    """200 tokens: beyond every window, on the long side of LongRoPE, and beyond what linear scaling was stretched from."""
    prompt = tiny.random_tokens(200)
    decoder = tiny.load(checkpoint)
    assert decoder.spec.max_position == 256
    expected = tiny.reference_logits(tiny.reference(name), prompt)
    for chunk in (200, 61):
        runner = PagedRunner(decoder)
        parts = [runner.feed({0: prompt[start : start + chunk]})[0] for start in range(0, 200, chunk)]
        assert (torch.cat(parts) - expected).abs().max() < TOLERANCE


def test_every_name_has_a_tiny_model() -> None:
    from octavo.models import registry

    assert {name.partition("+")[0] for name in tiny.NAMES} == set(registry.discover("ARCHITECTURES"))
