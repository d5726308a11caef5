"""Several decode steps in one native call give the answers of single steps."""

from __future__ import annotations

import pytest
import torch
from tests.engine.stepping import Answer, Stepper, load, write_config
from tests.engine.test_bits import TINY

from octavo.models.decoder import Decoder
from octavo.types.sampling_params import SamplingParams

PARAMS = [
    SamplingParams(temperature=0, max_tokens=40),
    SamplingParams(temperature=0.8, seed=3, max_tokens=33),
    SamplingParams(temperature=1.2, seed=4, top_p=0.8, top_k=20, max_tokens=47),
    SamplingParams(temperature=1.0, seed=5, min_p=0.05, max_tokens=21),
    SamplingParams(temperature=0, max_tokens=1),
]


@pytest.fixture(scope="module", params=TINY)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = write_config(tmp_path_factory.mktemp("model"), TINY[request.param])
    return load(folder, "dummy")


def answers(
    model: Decoder,
    max_decode_steps: int,
    *,
    recorded: bool = True,
    stops: tuple[int, ...] = (),
    num_blocks: int = 512,
) -> tuple[dict[str, Answer], Stepper]:
    stepper = Stepper(
        model,
        recorded=recorded,
        max_decode_steps=max_decode_steps,
        max_num_batched_tokens=64,
        num_blocks=num_blocks,
    )
    for number, params in enumerate(PARAMS):
        prompt = [(7 * number + 3 * i) % 300 for i in range(5 + 9 * number)]
        stepper.add(f"r{number}", prompt, params, stops)
    return stepper.run(), stepper


def tokens(found: dict[str, Answer]) -> dict[str, list[int]]:
    return {name: answer.token_ids for name, answer in found.items()}


@pytest.mark.parametrize("max_decode_steps", [2, 3, 8])
def test_the_same_tokens_in_fewer_plans(model: Decoder, max_decode_steps: int) -> None:
    single, plain = answers(model, 1, recorded=False)
    several, ahead = answers(model, max_decode_steps)
    assert tokens(several) == tokens(single)
    assert len(ahead.step_sizes) < len(plain.step_sizes)
    assert all(len(several[f"r{i}"].token_ids) == params.max_tokens for i, params in enumerate(PARAMS))


def test_stop_ids_end_an_answer_where_they_end_it_in_single_steps(model: Decoder) -> None:
    free, _ = answers(model, 1)
    stops = tuple(free[f"r{i}"].token_ids[9 + i] for i in range(4))
    single, _ = answers(model, 1, stops=stops)
    several, _ = answers(model, 8, stops=stops)
    assert tokens(several) == tokens(single) != tokens(free)


def test_with_hardly_any_pages(model: Decoder) -> None:
    """Steps ahead take free pages only; preemption goes on as ever."""
    single, _ = answers(model, 1)
    several, stepper = answers(model, 8, num_blocks=8 * len(Stepper(model).layout.groups))
    assert stepper.num_preemptions
    assert tokens(several) == tokens(single)


def test_a_model_that_cannot_be_recorded_takes_single_steps(model: Decoder) -> None:
    found, stepper = answers(model, 8, recorded=False)
    assert tokens(found) == tokens(answers(model, 1)[0])
    assert stepper.steps_planned > len(stepper.step_sizes)


def test_who_wants_more_than_the_token_goes_step_by_step(model: Decoder) -> None:
    stepper = Stepper(model, recorded=True, max_decode_steps=8)
    stepper.add("plain", [5, 6, 7], SamplingParams(temperature=0, max_tokens=20))
    stepper.add("curious", [5, 6, 7], SamplingParams(temperature=0, max_tokens=12, logprobs=2))
    found = stepper.run()
    assert found["curious"].token_ids == found["plain"].token_ids[:12]
    assert len(found["curious"].logprobs) == 12


def test_logits_that_are_no_numbers_end_the_request_with_an_error(model: Decoder) -> None:
    stepper = Stepper(model, recorded=True, max_decode_steps=4)
    stepper.add("r", [5, 6, 7], SamplingParams(temperature=0, max_tokens=40))
    for _ in range(3):
        stepper.step()
    before = model.model.norm.weight.clone()
    got = len(stepper.answers["r"].token_ids)
    assert 1 < got < 40
    stepper.errors_expected = True
    with torch.inference_mode():
        model.model.norm.weight.fill_(torch.nan)
        stepper.run()
        model.model.norm.weight.copy_(before)
    assert stepper.answers["r"].error == "the model's logits are not finite numbers (NaN or infinite)"
    assert len(stepper.answers["r"].token_ids) == got
