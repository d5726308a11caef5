"""The async front over a real engine process with a fake model: streams, aborts, deaths, restarts, drain."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from tests.engine.fakes import BROKEN, DIE, RAISE, fake_command, fake_config, fake_tokenizer

from octavo.config.env import Environment
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.clients.wire import Hello, encode
from octavo.engine.clients.zmq_async import AsyncZmqClient
from octavo.engine.stats import StepStats
from octavo.lib.errors import (
    CheckpointError,
    DrainingError,
    EngineDeadError,
    InvalidRequestError,
    OctavoError,
    OverloadedError,
)
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
LONG = SamplingParams(temperature=0.0, max_tokens=400, output_kind=RequestOutputKind.DELTA)


@asynccontextmanager
async def running(
    *, restarts: int = 3, wait: bool = True, command: list[str] | None = None, **config: Any
) -> AsyncIterator[AsyncLLM]:
    client = AsyncZmqClient(
        command or fake_command(step_seconds=0.002), Environment(engine_max_restarts=restarts)
    )
    llm = AsyncLLM(fake_config(**config), client, fake_tokenizer())
    try:
        if wait:
            await llm.wait_ready()
        yield llm
    finally:
        await llm.shutdown()


async def collect(
    llm: AsyncLLM, prompt: Any, params: SamplingParams = GREEDY, name: str = "r"
) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, params, name)]


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


def run(scenario: Callable[[], Awaitable[None]], seconds: float = 60.0) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), seconds)

    asyncio.run(bounded())


def engine_of(llm: AsyncLLM) -> psutil.Process:
    return psutil.Process(llm.engine_pid)


def test_streams_and_whole_answers_agree() -> None:
    async def scenario() -> None:
        async with running() as llm:
            whole = (await collect(llm, "hello"))[-1]
            deltas = await collect(
                llm,
                "hello",
                SamplingParams(temperature=0.0, max_tokens=8, output_kind=RequestOutputKind.DELTA),
            )
            assert "".join(one.outputs[0].text for one in deltas) == whole.outputs[0].text
            assert len(whole.outputs[0].text) == 8
            assert len(deltas) > 1
            assert [one.finished for one in deltas] == [False] * (len(deltas) - 1) + [True]
            assert llm.num_open == 0

    run(scenario)


def test_many_at_once_get_what_they_would_get_alone() -> None:
    async def scenario() -> None:
        async with running() as llm:
            alone = [(await collect(llm, f"prompt {i}"))[-1].outputs[0].text for i in range(20)]
            tasks = [collect(llm, f"prompt {i}", GREEDY, str(i)) for i in range(20)]
            together = [outputs[-1].outputs[0].text for outputs in await asyncio.gather(*tasks)]
            assert together == alone

    run(scenario)


def test_n_answers_stream_and_not() -> None:
    """A48."""

    async def scenario() -> None:
        params = {"n": 3, "temperature": 1.0, "seed": 1, "max_tokens": 12}
        async with running() as llm:
            whole = (await collect(llm, "hi", SamplingParams(**params)))[-1]
            texts = ["", "", ""]
            for output in await collect(
                llm, "hi", SamplingParams(**params, output_kind=RequestOutputKind.DELTA)
            ):
                for answer in output.outputs:
                    texts[answer.index] += answer.text
            assert [answer.text for answer in whole.outputs] == texts
            assert len(set(texts)) == 3

    run(scenario)


def test_leaving_a_stream_aborts_in_the_engine() -> None:
    """A21."""

    async def scenario() -> None:
        async with running() as llm:
            seen: list[StepStats] = []
            llm.add_listener(Recorder(seen))
            stream = llm.generate("x", LONG, "r")
            await anext(stream)
            await stream.aclose()
            assert llm.num_open == 0
            await collect(llm, "y")
            assert seen[-1].scheduler is not None
            assert seen[-1].scheduler.num_running <= 1
            assert sum(stats.scheduler.generation_tokens for stats in seen if stats.scheduler) < 100

    run(scenario)


def test_cancelling_the_task_aborts_too() -> None:
    async def scenario() -> None:
        async with running() as llm:
            task = asyncio.create_task(collect(llm, "x", LONG))
            await until(lambda: llm.num_open == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert llm.num_open == 0
            assert len((await collect(llm, "x"))[-1].outputs[0].text) == 8

    run(scenario)


def test_abort_ends_the_stream_with_its_reason() -> None:
    async def scenario() -> None:
        async with running() as llm:
            task = asyncio.create_task(collect(llm, "x", LONG))
            await until(lambda: llm.num_open == 1)
            await llm.abort("r")
            assert (await task)[-1].outputs[0].finish_reason == "abort"

    run(scenario)


def test_an_id_is_free_again_at_once() -> None:
    """A71: cancelled and sent again at once beside a long one, ten times, always with the same answer."""

    async def scenario() -> None:
        async with running() as llm:
            expected = (await collect(llm, "solo"))[-1].outputs[0].token_ids
            beside = asyncio.create_task(collect(llm, "long", LONG, "long"))
            for _ in range(10):
                stream = llm.generate("solo", LONG, "again")
                await anext(stream)
                await stream.aclose()
                assert (await collect(llm, "solo", GREEDY, "again"))[-1].outputs[0].token_ids == expected
            assert "".join(output.outputs[0].text for output in await beside)

    run(scenario)


def test_mistakes_are_refused_at_the_door_and_leave_nothing_behind() -> None:
    async def scenario() -> None:
        async with running() as llm:
            for prompt, params in (
                ("", GREEDY),
                ([], GREEDY),
                ([10**9], GREEDY),
                ("x", SamplingParams(max_tokens=10**6)),
            ):
                with pytest.raises(InvalidRequestError):
                    await collect(llm, prompt, params)
            with pytest.raises(InvalidRequestError, match="cannot be sent"):
                await collect(llm, "x", SamplingParams(stop=["\ud800"]))
            assert llm.num_open == 0
            assert len((await collect(llm, "x"))[-1].outputs[0].text) == 8

    run(scenario)


@pytest.mark.parametrize(("order", "words"), [(BROKEN, "not finite"), (RAISE, "told to fail")])
def test_one_failing_request_leaves_the_engine_alive(order: int, words: str) -> None:
    async def scenario() -> None:
        async with running() as llm:
            with pytest.raises(OctavoError, match=words) as caught:
                await collect(llm, [order])
            assert caught.value.status == 500
            assert len((await collect(llm, "x"))[-1].outputs[0].text) == 8
            await llm.check_health()

    run(scenario)


def test_a_full_queue_says_so() -> None:
    async def scenario() -> None:
        async with running(
            command=fake_command(step_seconds=0.05), max_num_seqs=1, max_num_queued_reqs=1
        ) as llm:
            tasks = [asyncio.create_task(collect(llm, "x", GREEDY, str(i))) for i in range(6)]
            results = await asyncio.gather(*tasks, return_exceptions=True)
            refused = [result for result in results if isinstance(result, BaseException)]
            assert refused
            assert all(isinstance(error, OverloadedError) for error in refused)
            assert len(refused) < 6

    run(scenario)


def test_a_killed_engine_ends_every_request_and_comes_back() -> None:
    """A102."""

    async def scenario() -> None:
        async with running() as llm:
            stream = asyncio.create_task(collect(llm, "x", LONG, "stream"))
            whole = asyncio.create_task(collect(llm, "y", SamplingParams(max_tokens=400), "whole"))
            await until(lambda: llm.num_open == 2)
            killed = llm.engine_pid
            begin = time.monotonic()
            os.kill(killed, signal.SIGKILL)
            results = await asyncio.gather(stream, whole, return_exceptions=True)
            assert time.monotonic() - begin < 2.0
            for result in results:
                assert isinstance(result, EngineDeadError)
                assert "SIGKILL" in result.message
            assert not llm.is_ready
            with pytest.raises(EngineDeadError, match="started again"):
                await llm.check_health()
            with pytest.raises(EngineDeadError):
                await collect(llm, "z")
            await llm.wait_ready()
            await llm.check_health()
            assert llm.engine_pid != killed
            assert len((await collect(llm, "z"))[-1].outputs[0].text) == 8

    run(scenario)


def test_restarts_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(restarts=1) as llm:
            with pytest.raises(EngineDeadError, match="status 7"):
                await collect(llm, [DIE])
            await llm.wait_ready()
            with pytest.raises(EngineDeadError, match="status 7"):
                await collect(llm, [DIE])
            with pytest.raises(EngineDeadError, match="status 7"):
                await llm.wait_ready()
            with pytest.raises(EngineDeadError, match="status 7"):
                await llm.check_health()
        assert "status 7" in caplog.records[-1].getMessage()

    run(scenario)


def test_a_model_that_cannot_load_is_refused_with_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(wait=False, command=fake_command(load_error="tensor q is missing")) as llm:
            with pytest.raises(CheckpointError, match="tensor q is missing"):
                await llm.wait_ready()
            with pytest.raises(CheckpointError):
                await collect(llm, "x")
        assert "tensor q is missing" in caplog.records[-1].getMessage()

    run(scenario)


def test_requests_wait_for_the_first_start() -> None:
    async def scenario() -> None:
        async with running(wait=False, command=fake_command(boot_seconds=0.3)) as llm:
            assert not llm.is_ready
            assert len((await collect(llm, "x"))[-1].outputs[0].text) == 8

    run(scenario)


def test_drain_finishes_what_is_open_and_refuses_what_is_new() -> None:
    async def scenario() -> None:
        async with running(command=fake_command(step_seconds=0.01)) as llm:
            task = asyncio.create_task(collect(llm, "x", SamplingParams(max_tokens=30)))
            await until(lambda: llm.num_open == 1)
            assert not await llm.drain(timeout=0.01)
            with pytest.raises(DrainingError):
                await collect(llm, "y", GREEDY, "y")
            assert await llm.drain(timeout=10)
            assert len((await task)[-1].outputs[0].token_ids) == 30

    run(scenario)


def test_shutdown_ends_open_requests_and_the_process() -> None:
    async def scenario() -> None:
        async with running() as llm:
            process = engine_of(llm)
            task = asyncio.create_task(collect(llm, "x", LONG))
            await until(lambda: llm.num_open == 1)
            await llm.shutdown()
            with pytest.raises(EngineDeadError, match="shut down"):
                await task
            assert not process.is_running()

    run(scenario)


def test_a_stalled_engine_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.engine.async_llm.environment", lambda: Environment(health_stall_s=0.2))

    async def scenario() -> None:
        async with running() as llm:
            os.kill(llm.engine_pid, signal.SIGSTOP)
            task = asyncio.create_task(collect(llm, "x"))
            await until(lambda: llm.num_open == 1)
            await llm.check_health()
            await asyncio.sleep(0.4)
            with pytest.raises(EngineDeadError, match="no step came"):
                await llm.check_health()
            os.kill(llm.engine_pid, signal.SIGCONT)
            await task
            await llm.check_health()

    run(scenario)


def test_an_idle_engine_uses_no_processor_time() -> None:
    async def scenario() -> None:
        async with running() as llm:
            await collect(llm, "x")
            process = engine_of(llm)
            before = sum(process.cpu_times()[:2])
            await asyncio.sleep(1.0)
            assert sum(process.cpu_times()[:2]) - before <= 0.01

    run(scenario)


def test_the_prefix_cache_can_be_reset() -> None:
    async def scenario() -> None:
        async with running() as llm:
            prompt = [5] * 100
            assert (await collect(llm, prompt))[-1].num_cached_tokens == 0
            assert (await collect(llm, prompt))[-1].num_cached_tokens > 0
            assert await llm.reset_prefix_cache()
            assert (await collect(llm, prompt))[-1].num_cached_tokens == 0

    run(scenario)


class Recorder:
    """Keeps all statistics."""

    def __init__(self, seen: list[StepStats]) -> None:
        self._seen = seen

    def on_step(self, stats: StepStats) -> None:
        self._seen.append(stats)


class Broken:
    """A listener with a bug."""

    def on_step(self, stats: StepStats) -> None:
        raise ValueError("negative increment")


def test_counters_only_grow_and_sum_to_what_was_answered() -> None:
    """A96, with aborts, n > 1, preemption (a small pool), and a listener that raises."""

    async def scenario() -> None:
        async with running(num_blocks=12, max_num_seqs=8) as llm:
            seen: list[StepStats] = []
            llm.add_listener(Broken())
            llm.add_listener(Recorder(seen))
            params = SamplingParams(max_tokens=40, n=2, stop="qz", seed=3)
            tasks = [asyncio.create_task(collect(llm, f"prompt {i}", params, str(i))) for i in range(12)]
            await until(lambda: bool(seen))
            await llm.abort(["3", "4"])
            answers = [outputs[-1] for outputs in await asyncio.gather(*tasks)]
            generated = sum(len(answer.token_ids) for output in answers for answer in output.outputs)
            assert sum(stats.num_generation_tokens for stats in seen) == generated
            counts = [
                count for stats in seen for count in (stats.num_prompt_tokens, stats.num_generation_tokens)
            ]
            assert min(counts) >= 0
            assert sum(len(stats.finished) for stats in seen) == 12
            first_tokens = [
                output for output in answers if any(answer.token_ids for answer in output.outputs)
            ]
            assert sum(stats.num_prompt_tokens for stats in seen) == sum(
                len(output.prompt_token_ids) for output in first_tokens
            )
            assert sum(stats.scheduler.num_preemptions for stats in seen if stats.scheduler) > 0

    run(scenario)


@pytest.mark.parametrize("wait", [0.0, 0.2, 0.5])
def test_shutdown_while_the_engine_starts_leaves_no_error_in_the_log(
    wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def start_and_stop() -> None:
        async with running(wait=False) as llm:
            llm.start()
            await asyncio.sleep(wait)

    asyncio.run(start_and_stop())
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_frame_that_comes_after_shutdown_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def late() -> None:
        client = AsyncZmqClient(fake_command())
        llm = AsyncLLM(fake_config(), client, fake_tokenizer())
        llm.start()
        await llm.shutdown()
        client._take(client._link, encode(Hello(1)))

    asyncio.run(late())
    assert not caplog.records
