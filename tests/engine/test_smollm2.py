"""The whole engine on a real model: golden answers, seeds among neighbours, stops, log probabilities, an own process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.assets import smollm2_gguf
from tests.engine.paris import FRANCE, PARIS

from octavo import LLM, AsyncLLM, BeamSearchParams, EngineArgs, SamplingParams
from octavo.engine.clients.inproc import InprocClient
from octavo.entrypoints.cli.main import main
from octavo.lib.errors import ConfigError
from octavo.platforms import process_rss
from octavo.types.outputs import RequestOutput

SETTINGS: dict[str, Any] = {"max_model_len": 1024, "max_num_seqs": 32}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(smollm2_gguf()), **SETTINGS) as model:
        yield model


def ask(llm: LLM, prompt: Any, **sampling: Any) -> RequestOutput:
    return llm.generate([prompt], SamplingParams(**{"max_tokens": 8, **sampling}), use_tqdm=False)[0]


def test_greedy_golden(llm: LLM) -> None:
    """llama.cpp gives these ids for this prompt (tests/engine/paris.py)."""
    answer = ask(llm, FRANCE, temperature=0.0).outputs[0]
    assert answer.token_ids == PARIS
    assert answer.text.startswith(" Paris.\n\nThe ")


def test_text_and_ids_are_the_same_prompt(llm: LLM) -> None:
    assert ask(llm, "The capital of France is", temperature=0.0).outputs[0].token_ids == PARIS


def test_without_a_tokenizer_ids_go_in_and_come_out() -> None:
    with LLM(str(smollm2_gguf()), skip_tokenizer_init=True, **SETTINGS) as model:
        answer = ask(model, FRANCE, temperature=0.0).outputs[0]
        assert (answer.token_ids, answer.text) == (PARIS, "")
        with pytest.raises(ConfigError, match="skip_tokenizer_init"):
            model.get_tokenizer()


@pytest.mark.parametrize("command", ["serve", "run", "bench throughput"])
def test_commands_that_speak_text_need_a_tokenizer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--model", str(smollm2_gguf()), "--skip-tokenizer-init"]) == 1
    assert f"octavo {command} needs a tokenizer" in capsys.readouterr().err


def test_a_tokenizer_that_would_not_be_loaded_is_refused() -> None:
    with pytest.raises(ConfigError, match="--tokenizer cannot be given"):
        LLM(str(smollm2_gguf()), tokenizer=str(smollm2_gguf()), skip_tokenizer_init=True)


def test_chat_names_paris(llm: LLM) -> None:
    talk = [{"role": "user", "content": "What is the capital of France?"}]
    output = llm.chat(talk, SamplingParams(temperature=0.0, max_tokens=40), use_tqdm=False)[0]
    assert "Paris" in output.outputs[0].text
    assert output.outputs[0].finish_reason == "stop"
    assert output.prompt_token_ids[0] == 1
    assert output.prompt_token_ids.count(1) == 3  # one <|im_start|> a turn, no second BOS before them (A28)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1e-4},
        {"temperature": 1e-6},
        {"temperature": 1.0, "top_p": 1e-4},
        {"temperature": 1.0, "top_k": 1},
    ],
)
def test_nearly_greedy_is_greedy(llm: LLM, sampling: dict[str, float]) -> None:
    """A46."""
    assert ask(llm, FRANCE, seed=1, **sampling).outputs[0].token_ids == PARIS


def test_a_seed_gives_the_same_answer_among_neighbours(llm: LLM) -> None:
    """A42."""
    prompt = {"prompt_token_ids": list(range(300, 340))}
    seeded = SamplingParams(temperature=1.0, seed=7, max_tokens=24)
    alone = llm.generate([prompt], seeded, use_tqdm=False)[0].outputs[0].token_ids
    numbers = random.Random(3)
    requests: list[tuple[Any, SamplingParams]] = [(prompt, seeded)]
    for i in range(8):
        ids = [numbers.randrange(1000, 5000) for _ in range(numbers.randrange(1, 90))]
        params = SamplingParams(temperature=i % 3 / 2, seed=i if i % 2 else None, max_tokens=5 + 4 * i)
        requests.append(({"prompt_token_ids": ids}, params))
    numbers.shuffle(requests)
    at = next(i for i, (_, params) in enumerate(requests) if params is seeded)
    assert llm.reset_prefix_cache()
    outputs = llm.generate(
        [prompt for prompt, _ in requests], [params for _, params in requests], use_tqdm=False
    )
    assert outputs[at].outputs[0].token_ids == alone


def test_n_answers_are_those_of_their_seeds(llm: LLM) -> None:
    """A48."""
    several = ask(llm, FRANCE, n=3, temperature=1.0, seed=1).outputs
    single = [ask(llm, FRANCE, temperature=1.0, seed=1 + i).outputs[0].token_ids for i in range(3)]
    assert [answer.token_ids for answer in several] == single
    assert [answer.index for answer in several] == [0, 1, 2]


def test_min_tokens_holds_back_every_stop_id(llm: LLM) -> None:
    """A44."""
    bias = {0: 100.0, 2: 90.0, 198: 95.0}
    output = ask(
        llm, FRANCE, temperature=0.0, logit_bias=bias, min_tokens=10, stop_token_ids=[198], max_tokens=20
    ).outputs[0]
    assert not {0, 2, 198} & set(output.token_ids[:10])
    assert len(output.token_ids) == 11
    assert output.finish_reason == "stop"


@pytest.mark.parametrize("length", [31, 32, 33])
def test_prompt_logprobs_do_not_depend_on_the_cache(llm: LLM, length: int) -> None:
    """A64."""
    prompt = {"prompt_token_ids": list(range(400, 400 + length))}
    ask(llm, prompt, max_tokens=1)
    lists = [ask(llm, prompt, max_tokens=1, prompt_logprobs=1).prompt_logprobs for _ in range(2)]
    assert lists[0] == lists[1]
    assert lists[0] is not None
    assert [position is None for position in lists[0]] == [True] + [False] * (length - 1)


def test_logprob_tokens_spell_the_text(llm: LLM) -> None:
    """A18: a bias makes the model write characters whose bytes lie in several tokens."""
    tokenizer = llm.get_tokenizer()
    wanted = tokenizer.encode("今天🙂é", add_special_tokens=False)
    prompt = {"prompt_token_ids": [*FRANCE["prompt_token_ids"], *wanted]}
    output = ask(llm, prompt, prompt_logprobs=2, logprobs=2, temperature=0.0)
    assert output.prompt_logprobs is not None
    spelled = [
        next(iter(position.values())).decoded_token or "" for position in output.prompt_logprobs if position
    ]
    assert "".join(spelled).endswith(" is今天🙂é")
    answer = output.outputs[0]
    assert "".join(next(iter(p.values())).decoded_token or "" for p in answer.logprobs or []) == answer.text
    everything = [one.decoded_token for position in answer.logprobs or [] for one in position.values()]
    assert not any("Ġ" in (text or "") for text in everything)


def test_cancelled_and_sent_again_gives_the_same_ids(llm: LLM) -> None:
    """A71."""
    engine = llm.llm_engine
    prompts = [{"prompt_token_ids": list(range(500 + 50 * i, 530 + 50 * i))} for i in range(5)]
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    expected = [output.outputs[0].token_ids for output in llm.generate(prompts, greedy, use_tqdm=False)]
    engine.add_request("long", FRANCE, SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True))
    for round_number in range(10):
        for i, prompt in enumerate(prompts):
            engine.add_request(f"first {i}", prompt, greedy)
        for _ in range(1 + round_number % 4):
            engine.step()
        engine.abort_request([f"first {i}" for i in range(5)])
        outputs = llm.generate(prompts, greedy, use_tqdm=False)
        assert [output.outputs[0].token_ids for output in outputs] == expected
    engine.abort_request("long")
    while engine.has_unfinished_requests():
        engine.step()


def test_an_engine_in_its_own_process_answers_the_same() -> None:
    async def scenario() -> None:
        engine = AsyncLLM.from_engine_args(EngineArgs(model=str(smollm2_gguf()), threads=1, **SETTINGS))
        try:
            facts = await engine.wait_ready()
            assert facts.weight_bytes > 50 << 20
            params = SamplingParams(temperature=0.0, max_tokens=8)
            outputs = [output async for output in engine.generate(FRANCE, params, "r")]
            assert outputs[-1].outputs[0].token_ids == PARIS
        finally:
            await engine.shutdown()

    asyncio.run(scenario())


def test_sleep_frees_what_its_level_says_and_the_answers_stay(llm: LLM) -> None:
    """RSS is this process's own: level 1 gives the pages back that were written to, level 2 the weights as well."""
    long = [list(range(300, 1300)), list(range(1300, 2300))]
    llm.generate(long, SamplingParams(temperature=0.0, max_tokens=2), use_tqdm=False)
    assert isinstance(llm.llm_engine.client, InprocClient)
    core = llm.llm_engine.client.core
    written = 2000 // core.layout.block_size * core.layout.block_bytes
    for level, freed in ((1, written), (2, core.model.weight_bytes)):
        before = process_rss()
        llm.sleep(level)
        assert before - process_rss() > 0.9 * freed
        llm.wake_up()
        assert ask(llm, FRANCE, temperature=0.0).outputs[0].token_ids == PARIS


def test_one_beam_is_the_greedy_answer(llm: LLM) -> None:
    (output,) = llm.beam_search([FRANCE], BeamSearchParams(beam_width=1, max_tokens=8))
    (sequence,) = output.sequences
    assert sequence.tokens == [*FRANCE["prompt_token_ids"], *PARIS]
    assert (sequence.text or "").startswith("The capital of France is Paris.")


def test_beams_are_more_likely_than_greedy_and_scored_right(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=4, max_tokens=8, length_penalty=0.0, ignore_eos=True)
    prompts = ["The capital of France is", "Once upon a time"]
    for prompt, output in zip(prompts, llm.beam_search(prompts, params, concurrency_limit=1), strict=True):
        scores = []
        for sequence in output.sequences:
            again = ask(llm, sequence.tokens, max_tokens=1, prompt_logprobs=0)
            assert again.prompt_logprobs is not None
            rescored = [
                position[token].logprob
                for token, position in zip(sequence.tokens, again.prompt_logprobs, strict=True)
                if position is not None
            ][-8:]
            assert sequence.cum_logprob == pytest.approx(sum(rescored), abs=1e-4)
            scores.append(sequence.cum_logprob)
        greedy = ask(llm, prompt, temperature=0.0, ignore_eos=True, logprobs=0).outputs[0]
        assert len({tuple(sequence.tokens) for sequence in output.sequences}) == 4
        assert scores == sorted(scores, reverse=True)
        assert scores[0] >= (greedy.cumulative_logprob or 0.0) - 1e-4
    assert llm.beam_search(prompts, params)[1].sequences == output.sequences


def test_only_allowed_tokens_and_no_bad_words(llm: LLM) -> None:
    allowed = sorted({*PARIS, *FRANCE["prompt_token_ids"]})
    found = ask(llm, FRANCE, temperature=2.0, seed=1, max_tokens=30, allowed_token_ids=allowed).outputs[0]
    assert set(found.token_ids) <= set(allowed)
    held = ask(llm, FRANCE, temperature=0.0, max_tokens=30, bad_words=["Paris"]).outputs[0]
    assert "Paris" not in held.text


def test_reasoning_ends_within_its_budget(llm: LLM) -> None:
    found = ask(llm, "<think>", temperature=0.0, max_tokens=40, thinking_token_budget=5).outputs[0]
    tokenizer = llm.get_tokenizer()
    mark = tokenizer.encode("</think>", add_special_tokens=False)
    assert found.token_ids[5 : 5 + len(mark)] == mark
