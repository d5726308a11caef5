"""Whatever an answer holds and however it is cut, a stream's events fold to the whole object, with the same ids."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.server.folding import folded_message, folded_output, without_ids
from tests.unit.entrypoints.answer_events import counts, random_events, random_pieces

from octavo.entrypoints.anthropic.builder import MessageBuilder
from octavo.entrypoints.openai.handlers.turns import Piece
from octavo.entrypoints.openai.responses.builder import ResponseBuilder
from octavo.entrypoints.parsers.events import ContentDelta, ReasoningDelta, ToolCallArguments, ToolCallStart
from octavo.lib.errors import OctavoError


def response_builder() -> ResponseBuilder:
    return ResponseBuilder({"id": "resp_1", "status": "in_progress", "output": [], "usage": None}, counts())


def streamed(builder: Any, pieces: list[Piece], opening: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return opening + [event for piece in pieces for event in builder.add(piece)]


@pytest.mark.parametrize("seed", range(200))
def test_a_response_stream_folds_to_the_response(seed: int) -> None:
    rng = random.Random(seed)
    finish = rng.choice(["stop", "length"])
    said = random_events(rng, cut=finish == "length")
    stream, whole = response_builder(), response_builder()
    events = streamed(stream, random_pieces(rng, said, finish), stream.created() + stream.in_progress())
    whole.add(Piece(said, [], finish, None))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == f"response.{stream.response['status']}"
    assert folded_output(events) == events[-1]["response"]["output"] == stream.response["output"]
    assert without_ids(stream.response["output"]) == without_ids(whole.response["output"])
    assert len({item["id"] for item in stream.response["output"]}) == len(stream.response["output"])
    assert stream.response["usage"] == whole.response["usage"]


@pytest.mark.parametrize("seed", range(200))
def test_a_message_stream_folds_to_the_message(seed: int) -> None:
    rng = random.Random(seed)
    finish = rng.choice(["stop", "length"])
    said = random_events(rng, cut=finish == "length")
    stream, whole = MessageBuilder("m", counts()), MessageBuilder("m", counts())
    events = streamed(stream, random_pieces(rng, said, finish), stream.started())
    whole.add(Piece(said, [], finish, None))
    assert folded_message(events) == stream.message
    assert stream.message | {"id": ""} == whole.message | {"id": ""}


def test_an_answer_without_anything_is_an_empty_message() -> None:
    builder = response_builder()
    events = streamed(builder, [Piece([], [], "stop", None)], builder.created())
    (item,) = folded_output(events)
    assert item["content"][0]["text"] == ""
    assert builder.response["status"] == item["status"] == "completed"


def test_what_the_limit_cuts_is_incomplete() -> None:
    builder = response_builder()
    said = [ReasoningDelta("hm"), ToolCallStart(0, "c", "f"), ToolCallArguments(0, '{"a')]
    builder.add(Piece(said, [], "length", None))
    assert [item["status"] for item in builder.response["output"]] == ["completed", "incomplete"]
    assert builder.response["status"] == "incomplete"
    assert builder.response["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(("end", "status"), [("failed", "failed"), ("cancelled", "cancelled")])
def test_a_response_that_is_ended_keeps_what_was_said(end: str, status: str) -> None:
    builder = response_builder()
    events = builder.created() + builder.add(Piece([ContentDelta("half")], [], None, None))
    events += builder.failed(OctavoError("gone")) if end == "failed" else builder.cancelled()
    assert builder.response["status"] == status
    assert folded_output(events) == builder.response["output"]
    assert builder.response["output"][0]["status"] == "incomplete"
    assert builder.response.get("error") == (
        {"code": "server_error", "message": "gone"} if end == "failed" else None
    )


def test_log_probabilities_come_once_each_whatever_the_pieces() -> None:
    entries = [{"token": str(n), "logprob": -1.0, "bytes": [], "top_logprobs": []} for n in range(5)]
    builder = response_builder()
    pieces = [
        Piece([], entries[:1], None, None),  # spells nothing yet
        Piece([ContentDelta("a"), ContentDelta("b")], entries[1:3], None, None),
        Piece([], entries[3:4], None, None),
        Piece([], entries[4:], "stop", None),
    ]
    events = streamed(builder, pieces, builder.created())
    assert folded_output(events)[0]["content"][0]["logprobs"] == entries
    assert builder.response["output"][0]["content"][0]["logprobs"] == entries


def test_stop_reasons_of_messages() -> None:
    def reason(finish: str, stop: int | str | None, *events: Any) -> tuple[Any, Any]:
        builder = MessageBuilder("m", counts())
        builder.add(Piece(list(events), [], finish, stop))
        return builder.message["stop_reason"], builder.message["stop_sequence"]

    assert reason("stop", None) == ("end_turn", None)
    assert reason("stop", 7) == ("end_turn", None)
    assert reason("stop", "END") == ("stop_sequence", "END")
    assert reason("length", None) == ("max_tokens", None)
    with pytest.raises(OctavoError, match="abort"):
        reason("abort", None)
