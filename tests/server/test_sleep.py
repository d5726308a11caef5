"""`/sleep`, `/wake_up`, `/is_sleeping`, `/reset_prefix_cache`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from tests.server.harness import Server, running

from octavo.entrypoints.openai.args import ServerArgs


@pytest.fixture(scope="module")
def sleeper() -> Iterator[Server]:
    with running(server_args=ServerArgs(enable_sleep_mode=True), step_seconds=0.01) as server:
        yield server


def is_sleeping(server: Server) -> bool:
    return bool(server.get("/is_sleeping").json()["is_sleeping"])


@pytest.mark.parametrize("level", [1, 2])
def test_a_model_sleeps_refuses_and_wakes(sleeper: Server, level: int) -> None:
    wanted = sleeper.chat("hi", max_tokens=5).json()["choices"]
    assert sleeper.post(f"/sleep?level={level}", None).status_code == 200
    assert is_sleeping(sleeper)
    state = {1: "weights_offloaded", 2: "discard_all"}[level]
    assert sleeper.metric("engine_sleep_state", sleep_state=state) == 1
    assert sleeper.metric("engine_sleep_state", sleep_state="awake") == 0
    refused = sleeper.chat("hi", max_tokens=5)
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "model_asleep_error"
    assert (sleeper.get("/health").status_code, sleeper.get("/ready").status_code) == (200, 503)
    assert sleeper.post("/wake_up?tags=weights", None).status_code == 200
    assert is_sleeping(sleeper)
    assert sleeper.post("/wake_up?tags=kv_cache", None).status_code == 200
    assert not is_sleeping(sleeper)
    assert sleeper.metric("engine_sleep_state", sleep_state="awake") == 1
    assert sleeper.metric("cache_config_info", block_size=str(sleeper.engine.config.cache.block_size)) == 1
    assert sleeper.chat("hi", max_tokens=5).json()["choices"] == wanted
    assert sleeper.get("/ready").status_code == 200


@pytest.mark.parametrize("mode", ["abort", "wait"])
def test_open_requests_are_ended_or_waited_for(sleeper: Server, mode: str) -> None:
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(sleeper.complete("x", max_tokens=60, ignore_eos=True))
    )
    asking.start()
    while not sleeper.engine.num_open:
        time.sleep(0.01)
    assert sleeper.post(f"/sleep?mode={mode}", None).status_code == 200
    asking.join()
    sleeper.post("/wake_up", None)
    assert answers[0].json()["choices"][0]["finish_reason"] == ("abort" if mode == "abort" else "length")


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/sleep?level=3", "level"),
        ("/sleep?level=deep", "query"),
        ("/sleep?mode=gently", "mode"),
        ("/wake_up?tags=all", "tags"),
    ],
)
def test_what_is_no_sleep_is_refused(sleeper: Server, path: str, param: str) -> None:
    answer = sleeper.post(path, None)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not is_sleeping(sleeper)


def test_the_cache_is_reset_while_nobody_holds_pages(sleeper: Server) -> None:
    prompt = list(range(100, 200))
    for cached in (0, 96):
        usage = sleeper.complete(prompt, max_tokens=1).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached
    assert sleeper.post("/reset_prefix_cache", None).status_code == 200
    usage = sleeper.complete(prompt, max_tokens=1).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    with sleeper.client.stream(
        "POST", "/v1/completions", json={"prompt": "x", "max_tokens": 200, "stream": True, "ignore_eos": True}
    ) as stream:
        next(stream.iter_lines())
        busy = sleeper.post("/reset_prefix_cache", None)
    assert (busy.status_code, busy.json()["error"]["type"]) == (409, "conflict_error")


def test_without_the_flag_nobody_can_send_a_model_to_sleep(server: Server) -> None:
    for path in ("/sleep", "/wake_up", "/reset_prefix_cache"):
        assert server.post(path, None).status_code == 404
