"""The sync front and class LLM, in this process and with an engine process, over a fake model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from tests.engine.fakes import (
    BROKEN,
    DIE,
    EOS,
    FakeExecutor,
    fake_command,
    fake_config,
    fake_core,
    fake_tokenizer,
)

from octavo import LLM, LLMEngine, RequestOutputKind, SamplingParams
from octavo.engine.clients.inproc import InprocClient
from octavo.engine.clients.process import folder_of
from octavo.engine.clients.zmq_sync import SyncZmqClient
from octavo.lib.errors import CheckpointError, ConfigError, EngineDeadError, InvalidRequestError

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


def inproc(executor: FakeExecutor | None = None, **settings: Any) -> LLMEngine:
    config = fake_config(**settings)
    return LLMEngine(config, InprocClient(fake_core(config, executor)), fake_tokenizer())


@pytest.fixture(params=["inproc", "own process"])
def engine(request: pytest.FixtureRequest) -> Iterator[LLMEngine]:
    if request.param == "inproc":
        made = inproc()
    else:
        client = SyncZmqClient(fake_command())
        client.start(fake_config())
        made = LLMEngine(fake_config(), client, fake_tokenizer())
    yield made
    made.shutdown()
    made.shutdown()


def forced(text: str, **settings: Any) -> LLM:
    """A model that answers exactly `text`, then EOS."""
    return LLM.from_engine(inproc(FakeExecutor(script=[*text.encode(), EOS]), **settings))


# -- LLMEngine --------------------------------------------------------------------------------------------------------


def test_step_until_nothing_is_left(engine: LLMEngine) -> None:
    for number in range(3):
        engine.add_request(str(number), "hello", GREEDY)
    last: dict[str, str] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            last[output.request_id] = output.outputs[0].text
    assert len(set(last.values())) == 1
    assert len(last) == 3
    assert engine.step() == []


def test_an_aborted_request_comes_back_once(engine: LLMEngine) -> None:
    engine.add_request("a", "x", SamplingParams(max_tokens=100))
    engine.add_request("b", "x", GREEDY)
    engine.step()
    engine.abort_request("a")
    ends = []
    while engine.has_unfinished_requests():
        ends += [output for output in engine.step() if output.finished]
    assert sorted((one.request_id, one.outputs[0].finish_reason) for one in ends) == [
        ("a", "abort"),
        ("b", "length"),
    ]


def test_both_kinds_of_client_can_reset_the_cache(engine: LLMEngine) -> None:
    llm = LLM.from_engine(engine)
    prompt = [5] * 100
    counts = [llm.generate([prompt], GREEDY, use_tqdm=False)[0].num_cached_tokens for _ in range(2)]
    assert counts[0] == 0 < counts[1]
    assert llm.reset_prefix_cache()
    assert llm.generate([prompt], GREEDY, use_tqdm=False)[0].num_cached_tokens == 0


def test_a_dead_engine_process_is_an_error_with_its_cause() -> None:
    client = SyncZmqClient(fake_command())
    client.start(fake_config())
    engine = LLMEngine(fake_config(), client, fake_tokenizer())
    try:
        engine.add_request("a", [DIE], GREEDY)
        with pytest.raises(EngineDeadError, match="status 7"):
            engine.step()
        assert not engine.has_unfinished_requests()
    finally:
        engine.shutdown()


def test_a_process_that_cannot_load_says_why() -> None:
    client = SyncZmqClient(fake_command(load_error="tensor q is missing"))
    with pytest.raises(CheckpointError, match="tensor q is missing"):
        client.start(fake_config())
    client.shutdown()


def test_an_engine_does_not_outlive_its_front() -> None:
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.engine.fakes import fake_command, fake_config\n"
        "from octavo.engine.clients.zmq_sync import SyncZmqClient\n"
        "client = SyncZmqClient(fake_command()); client.start(fake_config())\n"
        "print(client._process.pid, flush=True); sys.stdin.read()"
    )
    front = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert front.stdout is not None
    assert front.stdin is not None
    engine = psutil.Process(int(front.stdout.readline()))
    assert engine.is_running()
    folder = folder_of(engine.cmdline()[-1])
    assert folder.is_dir()
    front.send_signal(signal.SIGKILL)
    front.wait()
    front.stdin.close()
    front.stdout.close()
    deadline = time.monotonic() + 10
    while engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not folder.exists()


def test_the_front_decides_about_signals() -> None:
    client = SyncZmqClient(fake_command())
    client.start(fake_config())
    engine = LLMEngine(fake_config(), client, fake_tokenizer())
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(client._process.pid, number)
        engine.add_request("a", "x", GREEDY)
        outputs = []
        while engine.has_unfinished_requests():
            outputs += engine.step()
        assert outputs[-1].finished
    finally:
        engine.shutdown()


# -- LLM --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "count"),
    [
        ("one", 1),
        (["one", "two"], 2),
        ([1, 2, 3], 1),
        ([[1, 2], [3]], 2),
        ({"prompt_token_ids": [1, 2]}, 1),
        ([{"prompt_token_ids": [1]}, {"prompt": "x"}, "y", [5]], 4),
        ([], 0),
    ],
)
def test_every_form_of_prompts(prompts: Any, count: int) -> None:
    outputs = LLM.from_engine(inproc()).generate(prompts, GREEDY, use_tqdm=False)
    assert len(outputs) == count
    assert all(output.finished and len(output.outputs[0].token_ids) == 8 for output in outputs)


def test_outputs_keep_the_order_of_prompts_and_each_its_parameters() -> None:
    llm = LLM.from_engine(inproc(max_num_seqs=3))
    params = [SamplingParams(temperature=0.0, max_tokens=1 + i % 5) for i in range(20)]
    outputs = llm.generate([f"p{i}" for i in range(20)], params, use_tqdm=False)
    assert [output.prompt for output in outputs] == [f"p{i}" for i in range(20)]
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1 + i % 5 for i in range(20)]


def test_parameters_must_be_as_many_as_prompts() -> None:
    with pytest.raises(InvalidRequestError, match="2 entries for 1"):
        LLM.from_engine(inproc()).generate("x", [GREEDY, GREEDY], use_tqdm=False)


def test_one_bad_prompt_means_nothing_runs_and_nothing_is_left() -> None:
    llm = LLM.from_engine(inproc())
    with pytest.raises(InvalidRequestError):
        llm.generate(["good", ""], GREEDY, use_tqdm=False)
    assert llm.llm_engine.get_num_unfinished_requests() == 0
    assert len(llm.generate("good", GREEDY, use_tqdm=False)) == 1


def test_a_request_that_fails_in_the_engine_has_its_error_and_the_others_their_answers() -> None:
    good, bad = LLM.from_engine(inproc()).generate(["x", [BROKEN]], GREEDY, use_tqdm=False)
    assert (bad.error, bad.outputs[0].finish_reason) == ("the logits are not finite", "error")
    assert (good.error, len(good.outputs[0].token_ids)) == (None, 8)


def test_the_progress_bar_counts_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    LLM.from_engine(inproc()).generate(["a", "b"], GREEDY)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "tok/s" in shown


def test_defaults_come_from_the_generation_config() -> None:
    llm = LLM.from_engine(inproc(default_sampling=(("temperature", 0.0), ("max_tokens", 5))))
    assert llm.get_default_sampling_params().temperature == 0.0
    assert len(llm.generate("x", use_tqdm=False)[0].outputs[0].token_ids) == 5


def test_generate_without_parameters_ends_after_sixteen_tokens_as_vllms_does() -> None:
    llm = LLM.from_engine(inproc())
    assert len(llm.generate("x", use_tqdm=False)[0].outputs[0].token_ids) == 16
    assert len(llm.chat([{"role": "user", "content": "hi"}], use_tqdm=False)[0].outputs[0].token_ids) > 16


@pytest.mark.parametrize("prompts", [None, 5])
def test_what_is_no_prompt_is_refused(prompts: Any) -> None:
    with pytest.raises(InvalidRequestError, match="list of prompts"):
        LLM.from_engine(inproc()).generate(prompts)


@pytest.mark.parametrize("talk", ["hello", [{"role": "user"}]])
def test_what_is_no_conversation_is_refused(talk: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        LLM.from_engine(inproc()).chat(talk)


def test_chat_renders_with_the_models_template() -> None:
    llm = LLM.from_engine(inproc())
    talk = [{"role": "user", "content": "hi"}]
    one = llm.chat(talk, GREEDY, use_tqdm=False)
    assert one[0].prompt == "[user]hi\n[assistant]"
    several = llm.chat([talk, talk], GREEDY, use_tqdm=False)
    assert [output.outputs[0].text for output in several] == [one[0].outputs[0].text] * 2


def test_chat_can_continue_the_last_message() -> None:
    """A31."""
    llm = LLM.from_engine(inproc())
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well"}]
    prompts = [
        llm.chat(talk, GREEDY, use_tqdm=False, **flags)[0].prompt
        for flags in ({}, {"add_generation_prompt": False}, {"continue_final_message": True})
    ]
    assert prompts == [
        "[user]hi\n[assistant]Well\n[assistant]",
        "[user]hi\n[assistant]Well\n",
        "[user]hi\n[assistant]Well",
    ]


def test_chat_takes_another_template() -> None:
    output = LLM.from_engine(inproc()).chat(
        [{"role": "user", "content": "hi"}], GREEDY, use_tqdm=False, chat_template="T"
    )
    assert output[0].prompt == "T"


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_model_length"):
        LLM(model="x", max_model_length=5)


def test_a_forced_answer_stops_at_eos_and_at_strings() -> None:
    """A13, offline."""
    output = (
        forced("ABC DEFGHIJ tail").generate("x", SamplingParams(max_tokens=50), use_tqdm=False)[0].outputs[0]
    )
    assert (output.text, output.finish_reason, output.stop_reason) == ("ABC DEFGHIJ tail", "stop", None)
    params = SamplingParams(max_tokens=50, stop=["DEFGHIJ"])
    output = forced("ABC DEFGHIJ tail").generate("x", params, use_tqdm=False)[0].outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("ABC ", "stop", "DEFGHIJ")


def test_min_tokens_holds_back_every_stop_id() -> None:
    """A44."""
    executor = FakeExecutor(script=[7, EOS, 7, 8, EOS, 7, 7, 7, 7, 7, 7, 7])
    llm = LLM.from_engine(inproc(executor, eos_token_ids=(EOS, 8)))
    params = SamplingParams(max_tokens=50, min_tokens=10, stop_token_ids=[7])
    output = llm.generate("x", params, use_tqdm=False)[0].outputs[0]
    assert len(output.token_ids) >= 10
    assert not {7, 8, EOS} & set(output.token_ids[:10])
    assert (output.finish_reason, output.stop_reason) == ("stop", 7)


@pytest.mark.parametrize("length", [15, 16, 17, 40])
def test_prompt_logprobs_are_whole_on_a_cache_hit_too(length: int) -> None:
    """A64."""
    llm = LLM.from_engine(inproc(max_num_batched_tokens=16))
    params = SamplingParams(temperature=0.0, max_tokens=2, prompt_logprobs=1)
    prompt = list(range(97, 97 + length))
    lists = [llm.generate([prompt], params, use_tqdm=False)[0].prompt_logprobs for _ in range(2)]
    assert lists[0] == lists[1]
    assert lists[0] is not None
    assert len(lists[0]) == length
    assert [next(iter(position)) for position in lists[0][1:] if position] == prompt[1:]


def test_output_kind_does_not_matter_to_generate() -> None:
    params = SamplingParams(temperature=0.0, max_tokens=8, output_kind=RequestOutputKind.DELTA)
    llm = LLM.from_engine(inproc())
    assert (
        llm.generate("x", params, use_tqdm=False)[0].outputs
        == llm.generate("x", GREEDY, use_tqdm=False)[0].outputs
    )


def test_after_shutdown_a_request_is_told_so(engine: LLMEngine) -> None:
    llm = LLM.from_engine(engine)
    llm.generate("x", GREEDY, use_tqdm=False)
    llm.shutdown()
    with pytest.raises(EngineDeadError, match="was shut down"):
        llm.generate("x", GREEDY, use_tqdm=False)


def test_threads_take_turns(engine: LLMEngine) -> None:
    llm = LLM.from_engine(engine)
    prompts = [[f"{thread} {number}" for number in range(5)] for thread in range(4)]
    alone = [
        [answer.outputs[0].token_ids for answer in llm.generate(some, GREEDY, use_tqdm=False)]
        for some in prompts
    ]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda some: llm.generate(some, GREEDY, use_tqdm=False), prompts * 3))
    assert [[answer.outputs[0].token_ids for answer in answers] for answers in together] == alone * 3
