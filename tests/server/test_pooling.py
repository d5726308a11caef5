"""The routes of models that pool: shapes, encodings, order, usage, and what is refused."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.engine.fakes import fake_vector
from tests.server.harness import Server, running, until

from octavo.config import PoolingConfig
from octavo.types.pooling_params import PoolingParams

EMBED = PoolingConfig(
    task="embed",
    pooling_type="LAST",
    activation="normalize",
    size=8,
    matryoshka_dimensions=(2, 4),
    is_matryoshka=True,
)
CLASSIFY = PoolingConfig(
    task="classify", pooling_type="LAST", activation="softmax", size=3, labels=("no", "maybe", "yes")
)
CROSS = PoolingConfig(
    task="classify", pooling_type="LAST", activation="sigmoid", size=1, labels=("relevant",)
)
TEXTS = [f"text {index} " + "word " * (index * 7 % 31) for index in range(40)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(runner="pooling", pooling=EMBED) as made:
        yield made


@pytest.fixture(scope="module")
def cross() -> Iterator[Server]:
    with running(runner="pooling", pooling=CROSS) as made:
        yield made


@pytest.fixture(scope="module")
def classifier() -> Iterator[Server]:
    with running(runner="pooling", pooling=CLASSIFY) as made:
        yield made


def vector(text: str, task: str = "embed", dimensions: int | None = None) -> list[float]:
    """What the fake model makes of a text."""
    return array(
        "f", fake_vector(list(text.encode()), PoolingParams(task=task, dimensions=dimensions))
    ).tolist()


def embeddings(server: Server, given: Any, **fields: Any) -> list[Any]:
    answer = server.post("/v1/embeddings", {"input": given, **fields})
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert [entry["index"] for entry in data] == list(range(len(data)))
    return [entry["embedding"] for entry in data]


def refused(answer: httpx.Response, param: str, *says: str) -> None:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert all(part in error["message"] for part in says), error["message"]


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_a88_every_encoding_holds_the_same_numbers(server: Server, encoding: str | None) -> None:
    """base64 is little-endian float32, to the bit the float list; the client asks for it when its caller says nothing."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    options: Any = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(model="fake", input=TEXTS[:3], **options)
    found: Any = [entry.embedding for entry in answer.data]
    if encoding == "base64":
        found = [array("f", base64.b64decode(one)).tolist() for one in found]
    assert found == [vector(text) for text in TEXTS[:3]]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, TEXTS[:3]))


def test_a90_order_is_kept_and_usage_is_the_sum(server: Server) -> None:
    assert embeddings(server, TEXTS) == [vector(text) for text in TEXTS]
    answer = server.post("/v1/embeddings", {"input": TEXTS}).json()
    single = [server.post("/v1/embeddings", {"input": text}).json() for text in TEXTS]
    assert [entry["embedding"] for entry in answer["data"]] == [one["data"][0]["embedding"] for one in single]
    assert answer["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in single)
    assert answer["object"] == "list"
    assert answer["model"] == "fake"


def test_inputs_in_all_forms(server: Server) -> None:
    ids = list(b"text")
    expected = vector("text")
    assert embeddings(server, "text") == embeddings(server, ["text"]) == [expected]
    assert embeddings(server, ids) == embeddings(server, [ids]) == [expected]
    assert embeddings(server, [ids, ids]) == [expected, expected]
    chat = server.post("/v1/embeddings", {"messages": [{"role": "user", "content": "hi"}]}).json()
    assert chat["data"][0]["embedding"] == vector("[user]hi\n")


def test_bytes_say_where_each_vector_lies(server: Server) -> None:
    answer = server.post("/v1/embeddings", {"input": TEXTS[:2], "encoding_format": "bytes"})
    assert answer.headers["content-type"] == "application/octet-stream"
    facts = json.loads(answer.headers["metadata"])
    assert [(e["start"], e["end"], e["shape"]) for e in facts["data"]] == [(0, 32, [8]), (32, 64, [8])]
    assert array("f", answer.content).tolist() == vector(TEXTS[0]) + vector(TEXTS[1])
    plain = server.post("/v1/embeddings", {"input": TEXTS[:2], "encoding_format": "bytes_only"})
    assert plain.content == answer.content
    assert "metadata" not in plain.headers


def test_dimensions(server: Server) -> None:
    assert embeddings(server, "text", dimensions=4) == [vector("text", dimensions=4)]
    refused(server.post("/v1/embeddings", {"input": "a", "dimensions": 9}), "dimensions", "9", "8 numbers")
    refused(server.post("/v1/embeddings", {"input": "a", "dimensions": 3}), "dimensions", "2, 4")


def test_long_prompts_are_refused_or_cut(server: Server) -> None:
    refused(server.post("/v1/embeddings", {"input": ["a", "b" * 513]}), "input", "input[1]", "513", "512")
    assert embeddings(server, "b" * 600, truncate_prompt_tokens=-1) == [vector("b" * 512)]
    for given in ("b" * 600, [98] * 600):
        assert embeddings(server, given, truncate_prompt_tokens=5) == [vector("bbbbb")]
    assert embeddings(server, "b" * 512) == [vector("b" * 512)]
    body = {"input": "a", "truncate_prompt_tokens": 513}
    refused(server.post("/v1/embeddings", body), "truncate_prompt_tokens", "513", "512")


def test_more_inputs_than_may_wait_are_served() -> None:
    """A list waits with its sender, not in the engine's queue."""
    with running(runner="pooling", pooling=EMBED, max_num_queued_reqs=4, max_num_seqs=4) as small:
        assert embeddings(small, TEXTS) == [vector(text) for text in TEXTS]


def test_a_client_that_leaves_takes_its_whole_list_along() -> None:
    with running(runner="pooling", pooling=EMBED, max_num_seqs=2, step_seconds=0.1) as slow:
        with pytest.raises(httpx.TimeoutException):
            slow.client.post("/v1/embeddings", json={"input": TEXTS}, timeout=0.5)
        until(lambda: slow.engine.num_open == 0)
        assert embeddings(slow, "text") == [vector("text")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": [1, 99999]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": 5}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": "\ud800"}, "input"),
        ({"input": "a", "messages": [{"role": "user", "content": "hi"}]}, "input"),
        ({"messages": []}, "messages"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "embed_dtype": "float16"}, "embed_dtype"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "many"}, "dimensions"),
        ({"input": "a", "normalize": True, "use_activation": False}, "normalize"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "nonsense": 1}, "nonsense"),
        ({"input": "a", "priority": 2**40}, "priority"),
    ],
)
def test_bad_bodies_name_the_field(server: Server, body: dict[str, Any], param: str) -> None:
    answer = server.client.post(
        "/v1/embeddings", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert embeddings(server, "text") == [vector("text")]


def test_a_user_and_an_unknown_model(server: Server) -> None:
    assert embeddings(server, "text", user="someone", model="fake") == [vector("text")]
    assert server.post("/v1/embeddings", {"input": "a", "model": "other"}).status_code == 404


def test_pooling_gives_what_the_model_is_for(server: Server, classifier: Server) -> None:
    answer = server.post("/pooling", {"input": ["text"]}).json()
    assert answer["data"] == [{"index": 0, "object": "pooling", "data": vector("text")}]
    answer = classifier.post("/pooling", {"input": "text", "task": "classify"}).json()
    assert answer["data"][0]["data"] == vector("text", "classify")
    refused(server.post("/pooling", {"input": "text", "task": "classify"}), "task", "served for embed")
    refused(
        server.post("/pooling", {"input": "text", "task": "token_embed"}), "task", "embed, classify, score"
    )


def test_classify(server: Server, classifier: Server) -> None:
    answer = classifier.post("/classify", {"input": ["one", "two"]}).json()
    for entry, text in zip(answer["data"], ["one", "two"], strict=True):
        probs = vector(text, "classify")
        label = CLASSIFY.labels[probs.index(max(probs))]
        assert entry == {"index": entry["index"], "label": label, "probs": probs, "num_classes": 3}
    assert answer["usage"]["prompt_tokens"] == 6
    refused(server.post("/classify", {"input": "a"}), "task", "does not classify", "embed")
    refused(classifier.post("/v1/embeddings", {"input": "a"}), "task", "does not embed", "classify")


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_score_by_a_cross_encoder(cross: Server, path: str) -> None:
    answer = cross.post(path, {"text_1": "question", "text_2": ["one", "two"]}).json()
    assert [entry["score"] for entry in answer["data"]] == [
        vector("questionone", "score")[0],
        vector("questiontwo", "score")[0],
    ]
    pairs = cross.post(path, {"queries": ["a", "b"], "documents": ["c", "d"]}).json()
    assert [entry["score"] for entry in pairs["data"]] == [vector("ac", "score")[0], vector("bd", "score")[0]]
    assert pairs["usage"]["total_tokens"] == 4


def cosine(one: str, two: str) -> float:
    a, b = vector(one), vector(two)
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return float(dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5)


def test_score_by_the_cosine_of_embeddings(server: Server) -> None:
    answer = server.post("/score", {"text_1": "same", "text_2": ["same", "other"]}).json()
    assert [entry["score"] for entry in answer["data"]] == pytest.approx([1.0, cosine("same", "other")])
    assert answer["usage"]["prompt_tokens"] == len("sameother")  # a text that comes twice is computed once


def test_scores_that_cannot_be(server: Server, classifier: Server) -> None:
    refused(
        server.post("/score", {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}), "text_1", "2 texts", "3"
    )
    refused(server.post("/score", {"text_1": "a"}), "text_1", "queries and documents")
    refused(server.post("/score", {"text_1": "a", "text_2": "b", "documents": "c"}), "text_1")
    refused(server.post("/score", {"text_1": "a", "text_2": []}), "text_2", "1 to 2048")
    refused(server.post("/score", {"queries": "a" * 600, "documents": ["b"]}), "documents", "600", "512")
    refused(classifier.post("/score", {"text_1": "a", "text_2": "b"}), "task", "does not score", "classify")


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank(cross: Server, path: str) -> None:
    documents: list[Any] = ["one", {"text": "two"}, "three", "one"]
    texts = ["one", "two", "three", "one"]
    scores = [vector("q" + text, "score")[0] for text in texts]
    order = sorted(range(4), key=lambda index: -scores[index])
    body = {"model": "fake", "query": "q", "documents": documents}
    answer = cross.post(path, body).json()
    assert [(r["index"], r["relevance_score"]) for r in answer["results"]] == [(i, scores[i]) for i in order]
    assert answer["usage"]["total_tokens"] == sum(len(text) + 1 for text in texts)
    assert ("document" in answer["results"][0]) == (path != "/v2/rerank")
    best = cross.post(path, body | {"top_n": 2, "return_documents": True}).json()["results"]
    assert [(r["index"], r["document"]["text"]) for r in best] == [(i, texts[i]) for i in order[:2]]
    short = cross.post(path, body | {"max_tokens_per_doc": 1, "top_n": 0}).json()["results"]
    assert {r["index"]: r["relevance_score"] for r in short}[2] == vector("qt", "score")[0]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": [3]}, "documents"),
        ({"documents": [{"text": "a", "x": 1}]}, "documents"),
        ({"query": None}, "query"),
        ({"top_n": -1}, "top_n"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
    ],
)
def test_reranks_that_cannot_be(cross: Server, change: dict[str, Any], param: str) -> None:
    refused(cross.post("/rerank", {"query": "q", "documents": ["a"]} | change), param)


def test_cohere_embed(server: Server) -> None:
    body = {"model": "fake", "texts": ["one", "b" * 600], "input_type": "search_query"}
    answer = server.post("/v2/embed", body | {"embedding_types": ["float", "base64"]}).json()
    expected = [vector("one"), vector("b" * 512)]
    assert answer["embeddings"]["float"] == expected
    assert [array("f", base64.b64decode(e)).tolist() for e in answer["embeddings"]["base64"]] == expected
    assert answer["meta"]["billed_units"] == {"input_tokens": 515}
    refused(server.post("/v2/embed", body | {"truncate": "NONE"}), "texts", "texts[1]", "600")
    refused(server.post("/v2/embed", body | {"embedding_types": ["int8"]}), "embedding_types")


def test_the_wrong_kind_of_request_says_what_the_model_is_for(server: Server) -> None:
    for answer in (server.chat(), server.complete()):
        refused(answer, "model", "does not generate text", "embed")
    with running() as generating:
        for path, body in (
            ("/v1/embeddings", {"input": "a"}),
            ("/classify", {"input": "a"}),
            ("/rerank", {"query": "a", "documents": ["b"]}),
        ):
            refused(generating.post(path, body), "model", "generates text", "--runner pooling")


def test_embeddings_are_counted(server: Server) -> None:
    before = server.metric("prompt_tokens_total")
    embeddings(server, ["four", "four"])
    assert server.metric("prompt_tokens_total") - before == 8
    assert server.metric("num_requests_running") == 0
