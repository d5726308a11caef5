from __future__ import annotations

from typing import Any, cast

import pytest
from tests.unit.scheduling.driver import TOKEN, Driver

from octavo.lib.errors import ConfigError, InvalidRequestError, OctavoError, OverloadedError
from octavo.scheduling.budget import StepBudget
from octavo.types.engine import FinishReason, TokenLogprobs
from octavo.types.step import RequestStep, StepOutput


def test_a_request_from_prompt_to_end() -> None:
    driver = Driver()
    driver.now = 5.0
    driver.add("a", 20, max_tokens=3)
    driver.now = 6.5
    plan = driver.step()
    (new,) = plan.new_requests
    assert (new.num_prompt_tokens, new.num_computed_tokens, new.block_ids) == (20, 0, [[1, 2]])
    assert plan.num_scheduled_tokens == {"a": 20}
    assert driver.outputs[0].events == {"queued": 5.0, "scheduled": 6.5}
    assert driver.step().num_scheduled_tokens == {"a": 1}
    driver.run()
    assert driver.tokens == {"a": [TOKEN] * 3}
    assert driver.last("a").finish_reason is FinishReason.LENGTH
    assert driver.last("a").events is None
    assert not driver.scheduler.has_work()
    assert driver.scheduler.kv.pool.num_free == 100
    empty = driver.scheduler.schedule()
    assert empty.total_tokens == 0


def test_prefill_is_chunked_by_the_budget_and_decodes_go_first() -> None:
    driver = Driver(max_num_batched_tokens=32, long_prefill_token_threshold=0)
    driver.add("a", 10, max_tokens=50)
    driver.step()
    driver.add("b", 100, max_tokens=5)
    plan = driver.step()
    assert list(plan.num_scheduled_tokens.items()) == [("a", 1), ("b", 31)]
    assert driver.step().num_scheduled_tokens == {"a": 1, "b": 31}
    assert driver.step().num_scheduled_tokens == {"a": 1, "b": 31}
    assert driver.step().num_scheduled_tokens == {"a": 1, "b": 7}
    assert driver.step().num_scheduled_tokens == {"a": 1, "b": 1}


def test_a_long_prefill_is_held_back_only_while_others_decode() -> None:
    driver = Driver(max_num_batched_tokens=256, long_prefill_token_threshold=16)
    driver.add("a", 100, max_tokens=2)
    assert driver.step().num_scheduled_tokens == {"a": 100}
    driver.add("b", 200)
    driver.add("c", 10)
    assert driver.step().num_scheduled_tokens == {"a": 1, "b": 16, "c": 10}
    driver.scheduler.abort(["c"])
    assert driver.step().num_scheduled_tokens == {"b": 184}


def test_stop_ids_after_min_tokens() -> None:
    driver = Driver()
    driver.add("a", 5, max_tokens=10, min_tokens=2, stop_token_ids=[3, 4], eos_token_ids=[3])
    driver.add("b", 5, max_tokens=10, stop_token_ids=[3, 4], eos_token_ids=[3])
    driver.step(a=4, b=3)
    assert driver.last("b").finish_reason is FinishReason.STOP
    assert driver.last("b").stop_reason is None
    assert driver.last("a").finish_reason is None
    driver.step()
    driver.step(a=4)
    assert driver.last("a").finish_reason is FinishReason.STOP
    assert driver.last("a").stop_reason == 4
    assert driver.tokens["a"] == [4, TOKEN, 4]


def test_tokens_past_the_end_of_an_answer_are_dropped() -> None:
    driver = Driver()
    driver.add("a", 5, max_tokens=4, stop_token_ids=[3])
    plan = driver.scheduler.schedule()
    logprobs = [TokenLogprobs([token], [-1.0], 1) for token in (8, 3, 9)]
    result = RequestStep(request_id="a", token_ids=[8, 3, 9], logprobs=logprobs)
    (news,) = driver.take(plan, StepOutput(step_id=plan.step_id, results=[result]))
    assert news.new_token_ids == [8, 3]
    assert news.new_logprobs == logprobs[:2]
    assert driver.scheduler.stats().generation_tokens == 2


def test_the_context_ends_an_answer() -> None:
    driver = Driver(max_model_len=24)
    driver.add("a", 20, max_tokens=None)
    driver.add("b", 23, max_tokens=100)
    driver.run()
    assert len(driver.tokens["a"]) == 4
    assert len(driver.tokens["b"]) == 1
    assert driver.last("b").finish_reason is FinishReason.LENGTH


def test_what_can_never_run_is_refused_with_numbers() -> None:
    driver = Driver(num_blocks=8, max_model_len=512)
    cases: list[tuple[str, Any, dict[str, Any], str]] = [
        ("prompt", [], {}, "empty"),
        ("prompt", 512, {}, r"512 tokens.*context is 512"),
        ("prompt", 200, {"max_tokens": 1}, r"200 tokens.*holds 128 tokens.*8 pages of 16"),
        ("prompt", 200, {"max_tokens": None}, r"200 tokens.*holds 128"),
        ("max_tokens", 100, {"max_tokens": 30}, r"100 tokens with max_tokens 30.*holds 128"),
        ("output_token_ids", 10, {"max_tokens": 2, "output_token_ids": [1, 2]}, "max_tokens is 2"),
    ]
    for param, prompt, fields, message in cases:
        with pytest.raises(InvalidRequestError, match=message) as caught:
            driver.add("a", prompt, **fields)
        assert caught.value.param == param
    assert not driver.scheduler.has_work()


def test_too_big_for_the_pool_does_not_stall_the_others() -> None:
    """Case A68: 8 pages of 16 tokens, context 512."""
    driver = Driver(num_blocks=8, max_model_len=512)
    with pytest.raises(InvalidRequestError, match="can never fit"):
        driver.add("big", 200, max_tokens=16)
    for name in "abc":
        driver.add(name, 20, max_tokens=16)
    driver.run()
    assert {name: len(tokens) for name, tokens in driver.tokens.items()} == dict.fromkeys("abc", 16)


def test_exactly_the_whole_pool_fits() -> None:
    driver = Driver(num_blocks=8, max_model_len=512)
    driver.add("a", 100, max_tokens=29)  # 129 tokens, the last of which needs no page
    driver.add("b", 100, max_tokens=None)
    driver.run()
    assert {name: len(tokens) for name, tokens in driver.tokens.items()} == {"a": 29, "b": 29}
    assert driver.last("b").finish_reason is FinishReason.LENGTH


def test_ids_must_be_free() -> None:
    driver = Driver()
    driver.add("a", 5)
    with pytest.raises(InvalidRequestError, match="in use") as caught:
        driver.add("a", 5)
    assert caught.value.param == "request_id"


def test_the_queue_is_bounded() -> None:
    driver = Driver(max_num_queued_reqs=2, max_num_seqs=1)
    driver.add("a", 5)
    driver.step()
    driver.add("b", 5)
    driver.add("c", 5)
    with pytest.raises(OverloadedError) as caught:
        driver.add("d", 5)
    assert caught.value.retry_after >= 1
    assert driver.scheduler.stats().num_waiting == 2


def test_abort_in_every_state() -> None:
    driver = Driver(max_num_seqs=2, max_num_batched_tokens=32)
    for name, length in (("decoding", 5), ("prefilling", 100), ("waiting", 5)):
        driver.add(name, length, max_tokens=20)
    driver.step()
    names = ["waiting", "prefilling", "decoding", "decoding", "unknown"]
    outputs = driver.scheduler.abort(names)
    assert [output.request_id for output in outputs] == ["waiting", "prefilling", "decoding"]
    assert {output.finish_reason for output in outputs} == {FinishReason.ABORT}
    assert driver.scheduler.kv.pool.num_free == 100
    assert not driver.scheduler.has_work()
    driver.add("next", 5)
    assert sorted(driver.step().released) == ["decoding", "prefilling"]


def test_abort_while_a_step_is_in_flight_and_the_same_id_again() -> None:
    driver = Driver()
    driver.add("a", 5)
    driver.add("b", 5)
    plan = driver.scheduler.schedule()
    driver.scheduler.abort(["a"])
    driver.add("a", 9, max_tokens=1)
    assert [news.request_id for news in driver.answer(plan)] == ["b"]
    plan = driver.step()
    assert plan.released == ["a"]
    assert [new.request_id for new in plan.new_requests] == ["a"]
    assert driver.last("a").finish_reason is FinishReason.LENGTH


def test_a_step_that_failed_may_be_dropped_after_aborting_its_requests() -> None:
    driver = Driver(max_num_seqs=1)
    driver.add("a", 5)
    driver.add("b", 5, max_tokens=2)
    plan = driver.scheduler.schedule()
    with pytest.raises(OctavoError, match="twice"):
        driver.scheduler.schedule()
    driver.scheduler.abort(plan.num_scheduled_tokens)
    driver.run()
    assert driver.tokens == {"b": [TOKEN, TOKEN]}


def test_an_error_ends_only_its_request() -> None:
    driver = Driver()
    for name in "abc":
        driver.add(name, 5, max_tokens=3)
    driver.step(b="logits are not numbers")
    assert driver.last("b").finish_reason is FinishReason.ERROR
    assert driver.last("b").error == "logits are not numbers"
    driver.run()
    assert driver.tokens == {"a": [TOKEN] * 3, "b": [], "c": [TOKEN] * 3}


def test_preemption_keeps_tokens_and_order() -> None:
    driver = Driver(num_blocks=4, block_size=4, caching=False)
    driver.add("a", 4, max_tokens=9)
    driver.add("b", 4, max_tokens=8)
    for _ in range(5):
        driver.step()
    assert driver.scheduler.kv.pool.num_free == 0
    driver.add("c", 4, max_tokens=1)
    plan = driver.step()
    assert plan.released == ["b"]
    assert list(plan.num_scheduled_tokens) == ["a"]
    assert [entry.request_id for entry in driver.scheduler.waiting] == ["b", "c"]
    driver.run()
    assert {name: len(tokens) for name, tokens in driver.tokens.items()} == {"a": 9, "b": 8, "c": 1}
    comeback = next(new for plan in driver.plans for new in plan.new_requests if len(new.token_ids) > 4)
    assert comeback.request_id == "b"
    assert comeback.token_ids[4:] == [TOKEN] * 5
    assert driver.scheduler.stats().num_preemptions == 1


def test_the_lowest_priority_is_preempted_first() -> None:
    driver = Driver(num_blocks=4, block_size=4, caching=False, policy="priority")
    driver.add("low", 4, max_tokens=9, priority=5)
    driver.add("high", 4, max_tokens=9, priority=-1)
    while not driver.scheduler.stats().num_preemptions:
        plan = driver.step()
    assert plan.released == ["low"]
    driver.run()
    assert {name: len(tokens) for name, tokens in driver.tokens.items()} == {"low": 9, "high": 9}


def test_prefix_hits_are_reported_once_and_counted() -> None:
    driver = Driver()
    driver.add("a", range(40), max_tokens=1)
    driver.run()
    driver.add("b", range(40), max_tokens=2)
    plan = driver.step()
    assert plan.num_scheduled_tokens == {"b": 8}
    assert plan.new_requests[0].num_computed_tokens == 32
    driver.run()
    assert [news.num_cached_tokens for news in driver.outputs] == [0, 32, 32]
    stats = driver.scheduler.stats()
    assert (stats.prefix_queries, stats.prefix_hits, stats.prompt_tokens) == (80, 32, 80)
    again = driver.scheduler.stats()
    assert (again.prefix_queries, again.prefix_hits, again.prompt_tokens, again.generation_tokens) == (
        0,
        0,
        0,
        0,
    )


def test_salts_do_not_share_pages() -> None:
    """Case A62, the part about salts: cached tokens only inside the same salt."""
    driver = Driver()
    salts = {"cold": None, "a": "a", "b": "b", "base": None, "again": "a", "empty": ""}
    for name, salt in salts.items():
        driver.add(name, range(64), max_tokens=1, cache_salt=salt)
        driver.run()
    cached = {news.request_id: news.num_cached_tokens for news in driver.outputs}
    assert cached == {"cold": 0, "a": 0, "b": 0, "base": 48, "again": 48, "empty": 0}


@pytest.mark.parametrize("length", [15, 16, 17, 40])
def test_prompt_logprobs_do_not_read_the_cache(length: int) -> None:
    """Case A64: the positions must be computed to have log probabilities, cached or not."""
    driver = Driver()
    for name in "ab":
        driver.add(name, range(length), max_tokens=1, prompt_logprobs=1)
        assert driver.step().num_scheduled_tokens == {name: length}


def test_prompt_logprobs_are_sent_once_when_preempted() -> None:
    driver = Driver(block_size=4, max_num_batched_tokens=6)
    driver.add("a", 10, max_tokens=2, prompt_logprobs=0)
    entries = [TokenLogprobs([position], [-1.0], 1) for position in range(1, 10)]
    sent = []
    for attempt in range(2):  # the second time after a preemption, with the same chunks
        plan = driver.scheduler.schedule()
        result = RequestStep(request_id="a", token_ids=[], prompt_logprobs=entries[:6])
        sent += driver.take(plan, StepOutput(step_id=plan.step_id, results=[result]))
        if attempt == 0:
            driver.scheduler._preempt(driver.scheduler.running[0], StepBudget(0, 0))
    assert [news.new_prompt_logprobs for news in sent] == [entries[:6]]
    plan = driver.scheduler.schedule()
    result = RequestStep(request_id="a", token_ids=[TOKEN], prompt_logprobs=entries[6:])
    (news,) = driver.take(plan, StepOutput(step_id=plan.step_id, results=[result]))
    assert news.new_prompt_logprobs == entries[6:]


def test_equal_prompts_that_come_together_are_computed_once() -> None:
    driver = Driver(max_num_batched_tokens=64)
    for name in "abc":
        driver.add(name, [*range(50), ord(name)], max_tokens=4)
    driver.add("d", 8, max_tokens=4)
    assert driver.step().num_scheduled_tokens == {"a": 51, "d": 8}
    assert driver.step().num_scheduled_tokens == {"a": 1, "d": 1, "b": 3, "c": 3}
    driver.run()
    assert all(len(tokens) == 4 for tokens in driver.tokens.values())


def test_a_stream_is_continued_where_it_stopped() -> None:
    driver = Driver()
    driver.add("a", 20, max_tokens=5, min_tokens=4, stop_token_ids=[3], output_token_ids=[8, 9, 10])
    plan = driver.step(a=3)  # only three tokens stand before it
    (new,) = plan.new_requests
    assert new.token_ids[20:] == [8, 9, 10]
    assert new.num_prompt_tokens == 20
    driver.run()
    assert driver.tokens["a"] == [3, TOKEN]
    assert driver.last("a").finish_reason is FinishReason.LENGTH
    stats = driver.scheduler.stats()
    assert (stats.prompt_tokens, stats.generation_tokens) == (0, 2)


def test_without_chunked_prefill_prompts_come_whole() -> None:
    driver = Driver(enable_chunked_prefill=False, max_num_batched_tokens=32)
    with pytest.raises(InvalidRequestError, match=r"33 tokens.*at most 32"):
        driver.add("x", 33)
    driver.add("a", 20, max_tokens=3)
    driver.add("b", 20, max_tokens=3)
    assert driver.step().num_scheduled_tokens == {"a": 20}
    assert driver.step().num_scheduled_tokens == {"a": 1, "b": 20}


def test_every_running_request_gets_a_token_in_every_step() -> None:
    driver = Driver(max_num_seqs=50, max_num_batched_tokens=4)
    for number in range(6):
        driver.add(f"r{number}", 1, max_tokens=3)
    driver.step()
    assert [driver.step().total_tokens for _ in range(3)] == [4, 4, 2]


def test_output_that_does_not_answer_the_plan_is_refused() -> None:
    driver = Driver()
    driver.add("a", 5)
    plan = driver.scheduler.schedule()
    with pytest.raises(OctavoError, match="answer"):
        driver.scheduler.update(plan, StepOutput(step_id=plan.step_id + 1, results=[]))
    with pytest.raises(OctavoError, match="0 results"):
        driver.scheduler.update(plan, StepOutput(step_id=plan.step_id, results=[]))


def test_an_executor_that_says_nothing_is_noticed() -> None:
    driver = Driver()
    driver.add("a", 5)
    plan = driver.scheduler.schedule()
    with pytest.raises(OctavoError, match=r"0 tokens were sampled with 5 of 5"):
        driver.take(
            plan, StepOutput(step_id=plan.step_id, results=[RequestStep(request_id="a", token_ids=[])])
        )


@pytest.mark.parametrize("name", ["max_num_batched_tokens", "max_num_seqs", "max_num_queued_reqs"])
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Driver(**cast("dict[str, Any]", {name: 0}))


def test_a_pool_smaller_than_the_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 pages"):
        Driver(0, 4, 4, num_blocks=2)
