"""The search against every answer that there is: a tree small enough to be written out."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
from tests.engine.fakes import fake_config, fake_tokenizer

from octavo.engine.beam_search import BeamSearch, open_beam_search
from octavo.lib.errors import InvalidRequestError
from octavo.types.outputs import CompletionOutput, Logprob
from octavo.types.sampling_params import BeamSearchParams

VOCAB, EOS = 4, 3
PROMPT = [9, 9]


def probabilities(tokens: tuple[int, ...], seed: int) -> list[float]:
    """Log probabilities of the next token: they follow from all tokens before it."""
    rng = random.Random(f"{seed} {tokens}")
    weights = [rng.random() ** 3 + 1e-6 for _ in range(VOCAB)]
    return [math.log(weight / sum(weights)) for weight in weights]


def step(tokens: list[int], seed: int, width: int) -> CompletionOutput:
    """What an engine gives for one token with the 2 * width best log probabilities."""
    values = probabilities(tuple(tokens), seed)
    order = sorted(range(VOCAB), key=lambda token: -values[token])[: 2 * width]
    position = {token: Logprob(values[token], rank) for rank, token in enumerate(order, start=1)}
    return CompletionOutput(0, "", [order[0]], logprobs=[position])


def run(search: BeamSearch, seed: int, width: int) -> int:
    steps = 0
    while not search.finished:
        search.advance([step(beam.tokens, seed, width) for beam in search.live])
        steps += 1
    return steps


def every_answer(length: int, seed: int) -> list[tuple[list[int], float]]:
    """(tokens, log probability) of all that can be said, ended by EOS or by the length."""
    found = []
    for size in range(1, length + 1):
        for said in itertools.product(range(VOCAB), repeat=size):
            if EOS in said[:-1] or (size < length and said[-1] != EOS):
                continue
            tokens, total = list(PROMPT), 0.0
            for token in said:
                total += probabilities(tuple(tokens), seed)[token]
                tokens.append(token)
            found.append((tokens, total))
    return found


@pytest.mark.parametrize("penalty", [1.0, 0.0, -0.7, 2.5])
@pytest.mark.parametrize("seed", range(6))
def test_wide_enough_it_finds_the_best_of_all(seed: int, penalty: float) -> None:
    width, length = 64, 4
    params = BeamSearchParams(width, length, length_penalty=penalty, include_stop_str_in_output=True)
    search = BeamSearch(PROMPT, params, [EOS])
    run(search, seed, width)
    scored = [
        (total / (len(tokens) - (tokens[-1] == EOS)) ** penalty, tokens)
        for tokens, total in every_answer(length, seed)
    ]
    expected = [tokens for _, tokens in sorted(scored, key=lambda one: -one[0])[:width]]
    found = search.best()
    assert [sequence.tokens for sequence in found] == expected
    for sequence in found:
        answer = sequence.tokens[len(PROMPT) :]
        assert sequence.finish_reason == ("stop" if answer[-1] == EOS else "length")
        assert [next(iter(position)) for position in sequence.logprobs] == answer
        assert sequence.cum_logprob == pytest.approx(
            sum(position[token].logprob for token, position in zip(answer, sequence.logprobs, strict=True))
        )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("penalty", [1.0, 0.0, -1.0, 3.0])
def test_to_stop_early_changes_nothing(seed: int, penalty: float, monkeypatch: pytest.MonkeyPatch) -> None:
    params = BeamSearchParams(2, 12, length_penalty=penalty)
    quick = BeamSearch(PROMPT, params, [EOS])
    steps = run(quick, seed, 2)
    monkeypatch.setattr(BeamSearch, "_is_settled", lambda self: False)
    slow = BeamSearch(PROMPT, params, [EOS])
    assert steps <= run(slow, seed, 2)
    assert quick.best() == slow.best()


def test_one_beam_is_greedy() -> None:
    search = BeamSearch(PROMPT, BeamSearchParams(1, 6, ignore_eos=True), [EOS])
    run(search, 1, 1)
    tokens = list(PROMPT)
    for _ in range(6):
        values = probabilities(tuple(tokens), 1)
        tokens.append(values.index(max(values)))
    assert [sequence.tokens for sequence in search.best()] == [tokens]


def test_stop_ids_end_a_sequence_and_are_named() -> None:
    params = BeamSearchParams(64, 3, stop_token_ids=[2], ignore_eos=True)
    search = BeamSearch(PROMPT, params, [EOS])
    run(search, 0, 64)
    stopped = [sequence for sequence in search.best() if sequence.finish_reason == "stop"]
    assert stopped
    assert all(sequence.stop_reason == 2 and 2 not in sequence.tokens for sequence in stopped)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 1025}, "beam_width"),
        ({"beam_width": 2.5}, "beam_width"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 0.5}, "temperature"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"length_penalty": math.inf}, "length_penalty"),
        ({"length_penalty": 11.0}, "length_penalty"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ],
)
def test_values_have_limits(values: dict[str, float], name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        BeamSearchParams(**({"beam_width": 2, "max_tokens": 4} | values))  # type: ignore[arg-type]
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (BeamSearchParams(11, 4), "beam_width"),
        (BeamSearchParams(2, 511), "max_tokens"),
        (BeamSearchParams(2, 4, stop_token_ids=[99999]), "stop_token_ids"),
    ],
)
def test_what_this_model_cannot_do_is_refused(params: BeamSearchParams, name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_beam_search(fake_config(), fake_tokenizer(), "hi", params)
    assert caught.value.param == name


def test_prompts_without_token_ids_are_refused() -> None:
    config = fake_config()
    model = dataclasses.replace(config.model, hidden_size=4, enable_prompt_embeds=True)
    prompt = {"prompt_embeds": np.zeros((2, 4), np.float32)}
    with pytest.raises(InvalidRequestError, match="no token ids"):
        open_beam_search(
            dataclasses.replace(config, model=model), fake_tokenizer(), prompt, BeamSearchParams(2, 4)
        )
