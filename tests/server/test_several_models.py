"""Several models in one server: a chat model and an embedder side by side."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.harness import Server
from tests.server.several import running_several

from octavo.config import PoolingConfig
from octavo.entrypoints.openai.args import ServerArgs

EMBEDDER = PoolingConfig(task="embed", pooling_type="LAST", activation="identity", size=8)
MODELS = [{"name": "chat"}, {"name": "embed", "runner": "pooling", "pooling": EMBEDDER}, {"name": "other"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_several(MODELS, step_seconds=0.005) as running:
        yield running


def ask(server: Server, model: str) -> int:
    return server.chat("hi", model=model, max_tokens=4).status_code


def test_all_models_are_listed_and_each_can_be_looked_up(server: Server) -> None:
    cards = server.get("/v1/models").json()["data"]
    assert [card["id"] for card in cards] == ["chat", "embed", "other"]
    assert server.get("/v1/models/embed").json()["id"] == "embed"


def test_each_request_goes_to_the_model_that_it_names(server: Server) -> None:
    answer = server.chat("hi", model="other", max_tokens=4).json()
    assert answer["model"] == "other"
    assert server.chat("hi", max_tokens=4).json()["model"] == "chat"
    vectors = server.post("/v1/embeddings", {"input": "hi", "model": "embed"}).json()
    assert (vectors["model"], len(vectors["data"][0]["embedding"])) == ("embed", 8)
    for body in ({"model": "embed", "messages": [{"role": "user", "content": "x"}]},):
        assert server.post("/v1/chat/completions", body).status_code == 400
    assert server.post("/v1/embeddings", {"input": "hi", "model": "chat"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/embeddings", {"input": "x"}),
        ("/tokenize", {"prompt": "x"}),
        ("/detokenize", {"tokens": [65]}),
    ],
)
def test_an_unknown_model_is_told_which_there_are(server: Server, path: str, body: dict[str, object]) -> None:
    answer = server.post(path, body | {"model": "gpt"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["param"] == "model"
    assert "chat, embed, other" in error["message"]


def test_responses_of_all_models_are_in_one_store(server: Server) -> None:
    first = server.post("/v1/responses", {"input": "x", "model": "other", "max_output_tokens": 4}).json()
    assert server.get(f"/v1/responses/{first['id']}").json()["model"] == "other"
    body = {"input": "y", "model": "chat", "previous_response_id": first["id"], "max_output_tokens": 4}
    assert server.post("/v1/responses", body).status_code == 200


def test_metrics_have_each_family_once_and_a_series_for_each_model(server: Server) -> None:
    before = server.metric("generation_tokens_total", model_name="other")
    ask(server, "other")
    families = list(text_string_to_metric_families(server.get("/metrics").text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    tokens = next(family for family in families if family.name == "octavo:generation_tokens")
    counted = {sample.labels["model_name"]: sample.value for sample in tokens.samples}
    assert counted.keys() == {"chat", "embed", "other"}
    assert counted["other"] == before + 4


def test_one_model_sleeps_while_the_others_serve(server: Server) -> None:
    assert server.post("/sleep?level=2&model=other", None).status_code == 200
    assert [ask(server, name) for name in ("chat", "other")] == [200, 503]
    asleep = [
        server.get("/is_sleeping" + query).json()["is_sleeping"]
        for query in ("", "?model=other", "?model=chat")
    ]
    assert asleep == [False, True, False]
    assert server.get("/ready").status_code == 200
    assert server.get("/ready?model=other").status_code == 503
    assert server.post("/wake_up?model=other", None).status_code == 200
    assert ask(server, "other") == 200
    assert server.post("/sleep?model=gpt", None).status_code == 404


def test_a_crash_of_one_model_does_not_hurt_the_stream_of_another() -> None:
    with running_several([{"name": "a"}, {"name": "b"}], restarts=0, step_seconds=0.01) as server:
        body = {
            "model": "a",
            "prompt": "x",
            "max_tokens": 100,
            "ignore_eos": True,
            "stream": True,
            "temperature": 0,
        }
        alone = [line for line in server.post("/v1/completions", body).iter_lines() if "text" in line]
        with server.client.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            streamed = [next(lines)]
            os.kill(server.state.others[0].engine.engine_pid, signal.SIGKILL)
            streamed += lines
        texts = [
            "".join(json.loads(line[6:])["choices"][0]["text"] for line in some if '"text"' in line)
            for some in (alone, streamed)
        ]
        assert texts[0] == texts[1]
        assert len(texts[0]) == 100
        deadline = time.monotonic() + 10
        while server.get("/health?model=b").status_code != 503:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert [ask(server, name) for name in ("a", "b")] == [200, 503]
        assert [server.get(path).status_code for path in ("/health", "/ready", "/health?model=a")] == [
            200
        ] * 3


def test_the_door_stands_before_all_models() -> None:
    pytest.importorskip("limits")
    args = ServerArgs(shutdown_timeout=1, rate_limit_tokens=30)
    with running_several(MODELS, api_keys=("one", "two"), server_args=args, step_seconds=0.02) as server:
        server.client.headers["Authorization"] = "Bearer one"
        body = {"model": "other", "prompt": "x", "ignore_eos": True, "max_tokens": 400}
        assert server.post("/v1/completions", body, Authorization="").status_code == 401
        late = server.post("/v1/completions", body, **{"X-Request-Timeout": "0.3"})
        assert late.status_code == 504
        assert server.get("/load").json() == {"server_load": 0}
        assert server.metric("num_requests_running", model_name="other") == 0
        # What one model was asked for is charged to the key whichever it asks next.
        two = {"Authorization": "Bearer two"}
        assert server.post("/v1/completions", body | {"max_tokens": 40}, **two).status_code == 200
        assert server.post("/v1/completions", body | {"model": "chat"}, **two).status_code == 429
        names = [family.name for family in text_string_to_metric_families(server.get("/metrics").text)]
        assert len(names) == len(set(names))
        text = server.get("/metrics").text.splitlines()
        series = [line.rpartition(" ")[0] for line in text if not line.startswith("#")]
        assert len(series) == len(set(series))
        assert any(line.startswith("http_requests_total") for line in series)
