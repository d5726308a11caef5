"""Class LLM beside `generate`: enqueued prompts, sleep, metrics, tools in a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.fakes import DIE, FakeExecutor, fake_command, fake_config, fake_core, fake_tokenizer

from octavo import LLM, LLMEngine, SamplingParams
from octavo.engine.clients.inproc import InprocClient
from octavo.engine.clients.zmq_sync import SyncZmqClient
from octavo.lib.errors import AsleepError, CheckpointError, ConfigError, EngineDeadError, InvalidRequestError
from octavo.metrics.reader import Counter, Gauge, Histogram

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
TEMPLATE = (
    "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}{% for m in messages %}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}"
    "[{{ m.role }}]{{ m.content or '' }}{% endfor %}"
)


def inproc(executor: FakeExecutor | None = None, **settings: Any) -> LLM:
    config = fake_config(**settings)
    return LLM.from_engine(LLMEngine(config, InprocClient(fake_core(config, executor)), fake_tokenizer()))


def own_process() -> LLM:
    client = SyncZmqClient(fake_command())
    client.start(fake_config())
    return LLM.from_engine(LLMEngine(fake_config(), client, fake_tokenizer()))


@pytest.fixture(params=["inproc", "own process"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with inproc() if request.param == "inproc" else own_process() as made:
        yield made


def texts(outputs: Any) -> list[str]:
    return [output.outputs[0].text for output in outputs]


# -- enqueue ----------------------------------------------------------------------------------------------------------


def test_enqueued_prompts_answer_as_generate_does_in_their_order(llm: LLM) -> None:
    prompts = [f"prompt {number}" for number in range(12)]
    wanted = texts(llm.generate(prompts, GREEDY, use_tqdm=False))
    ids = llm.enqueue(prompts[:5], GREEDY) + llm.enqueue(prompts[5:], GREEDY)
    outputs = llm.wait_for_completion(use_tqdm=False)
    assert [output.request_id for output in outputs] == ids
    assert texts(outputs) == wanted
    assert llm.wait_for_completion(use_tqdm=False) == []


def test_what_was_enqueued_survives_a_generate_in_between(llm: LLM) -> None:
    wanted = texts(llm.generate(["a", "b"], GREEDY, use_tqdm=False))
    llm.enqueue(["a", "b"], GREEDY)
    llm.generate(["c"] * 3, SamplingParams(temperature=0.0, max_tokens=40), use_tqdm=False)
    assert texts(llm.wait_for_completion(use_tqdm=False)) == wanted


def test_a_wait_that_was_interrupted_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = inproc()
    llm.enqueue(["a"], GREEDY)
    llm.enqueue(["b"], SamplingParams(temperature=0.0, max_tokens=20))
    steps = iter(range(100))
    step = llm.llm_engine.step

    def interrupted() -> Any:
        if next(steps) == 12:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(llm.llm_engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.wait_for_completion(use_tqdm=False)
    assert [len(one.outputs[0].token_ids) for one in llm.wait_for_completion(use_tqdm=False)] == [8, 20]


def test_one_bad_prompt_enqueues_nothing(llm: LLM) -> None:
    llm.enqueue("good", GREEDY)
    with pytest.raises(InvalidRequestError):
        llm.enqueue(["good", ""], GREEDY)
    assert len(llm.wait_for_completion(use_tqdm=False)) == 1


def test_conversations_can_be_enqueued(llm: LLM) -> None:
    talk = [{"role": "user", "content": "hi"}]
    wanted = texts(llm.chat(talk, GREEDY, use_tqdm=False))
    llm.enqueue_chat([talk, talk], GREEDY)
    assert texts(llm.wait_for_completion(use_tqdm=False)) == wanted * 2


def test_a_dead_engine_ends_the_wait() -> None:
    with own_process() as llm:
        llm.enqueue([[DIE], [1]], GREEDY)
        with pytest.raises(EngineDeadError):
            llm.wait_for_completion(use_tqdm=False)
        assert llm.wait_for_completion(use_tqdm=False) == []


# -- sleep ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2])
def test_a_model_that_slept_answers_as_before_and_has_no_cache(llm: LLM, level: int) -> None:
    prompt = [5] * 100
    wanted = texts(llm.generate([prompt], GREEDY, use_tqdm=False))
    llm.sleep(level)
    assert llm.is_sleeping()
    with pytest.raises(AsleepError, match="wake it up"):
        llm.generate([prompt], GREEDY, use_tqdm=False)
    llm.wake_up()
    assert not llm.is_sleeping()
    output = llm.generate([prompt], GREEDY, use_tqdm=False)[0]
    assert (texts([output]), output.num_cached_tokens) == (wanted, 0)


def test_what_sleep_frees() -> None:
    executor = FakeExecutor()
    llm = inproc(executor)
    llm.generate("x", GREEDY, use_tqdm=False)
    llm.sleep(1)
    llm.sleep(1)
    assert (executor.discarded, executor.shutdowns, executor.loads) == (1, 0, 1)
    llm.sleep(2)
    llm.sleep(1)
    assert (executor.shutdowns, executor.loads) == (1, 1)
    llm.wake_up()
    assert executor.loads == 2


def test_parts_wake_one_by_one(llm: LLM) -> None:
    llm.sleep(2)
    with pytest.raises(InvalidRequestError, match="before kv_cache"):
        llm.wake_up(["kv_cache"])
    llm.wake_up(["weights"])
    assert llm.is_sleeping()
    llm.wake_up(["kv_cache"])
    assert not llm.is_sleeping()
    assert len(llm.generate("x", GREEDY, use_tqdm=False)) == 1


def test_a_model_whose_weights_are_gone_sleeps_on_and_says_why() -> None:
    executor = FakeExecutor()
    llm = inproc(executor)
    llm.sleep(2)
    executor.load_error = CheckpointError("model.safetensors is gone")
    with pytest.raises(CheckpointError, match="is gone"):
        llm.wake_up()
    assert llm.is_sleeping()
    executor.load_error = None
    llm.wake_up()
    assert len(llm.generate("x", GREEDY, use_tqdm=False)) == 1


@pytest.mark.parametrize(("level", "tags"), [(0, None), (3, None), (1, ["weight"])])
def test_unknown_levels_and_tags_are_refused(llm: LLM, level: int, tags: list[str] | None) -> None:
    with pytest.raises(InvalidRequestError, match=r"level must be 1 or 2|tags must be among"):
        llm.wake_up(tags) if tags else llm.sleep(level)


def test_a_model_does_not_sleep_over_open_requests(llm: LLM) -> None:
    llm.enqueue("x", GREEDY)
    with pytest.raises(InvalidRequestError, match="1 requests are open"):
        llm.sleep()
    assert len(llm.wait_for_completion(use_tqdm=False)) == 1
    llm.sleep()


# -- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_are_values_with_names_and_labels(llm: LLM) -> None:
    llm.generate(["ab", "cd"], GREEDY, use_tqdm=False)
    metrics = {(one.name, one.labels.get("finished_reason")): one for one in llm.get_metrics()}
    tokens = metrics["octavo:generation_tokens", None]
    assert tokens == Counter("octavo:generation_tokens", {"model_name": "fake", "engine": "0"}, 16)
    ended = metrics["octavo:request_success", "length"]
    assert isinstance(ended, Counter)
    assert ended.value == 2
    assert isinstance(metrics["octavo:kv_cache_usage_perc", None], Gauge)
    prompts = metrics["octavo:request_prompt_tokens", None]
    assert isinstance(prompts, Histogram)
    assert (prompts.count, prompts.sum, prompts.buckets["+Inf"], prompts.buckets["1.0"]) == (2, 4.0, 2, 0)


def test_metrics_need_to_be_asked_for() -> None:
    llm = inproc()
    llm._metrics = None
    with pytest.raises(ConfigError, match="disable_log_stats=False"):
        llm.get_metrics()


# -- tools ------------------------------------------------------------------------------------------------------------


def test_tools_and_the_arguments_of_calls_reach_the_template() -> None:
    llm = inproc()
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
    ]
    for messages, tools, wanted in (
        (talk, TOOLS, '<weather>[user]hiweather({"city": "Rome"})[assistant][tool]sunny'),
        (talk[:1], None, "[user]hi"),
    ):
        output = llm.chat(messages, GREEDY, use_tqdm=False, chat_template=TEMPLATE, tools=tools)[0]
        assert output.prompt == wanted
