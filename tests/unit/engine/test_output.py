"""From tokens to answers: text, stop strings, logprobs, n answers, in every output kind, stream and not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.fakes import EOS, fake_config, fake_tokenizer

from octavo.engine.input import InputProcessor
from octavo.engine.mailbox import Mailbox, merge_deltas
from octavo.engine.output import OutputProcessor, ProcessedStep
from octavo.lib.errors import EngineDeadError, InvalidRequestError, OverloadedError
from octavo.types.engine import EngineOutput, EngineOutputs, FinishReason, TokenLogprobs
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

CUMULATIVE, DELTA, FINAL = RequestOutputKind


class Front:
    """Input and output processing with tokens fed by hand."""

    def __init__(self, prompt: Any = "p", **sampling: Any) -> None:
        tokenizer = fake_tokenizer()
        self.output = OutputProcessor(tokenizer)
        params = SamplingParams(**{"max_tokens": 100, "output_kind": DELTA, **sampling})
        request = InputProcessor(fake_config().model, tokenizer).process("r", prompt, params)
        self.output.add(request)
        self.ids = [child.request_id for child in request.children]
        self.received: list[RequestOutput] = []
        self.aborted: list[str] = []

    def feed(
        self, tokens: list[int], finish: FinishReason | None = None, child: int = 0, **more: Any
    ) -> ProcessedStep:
        news = EngineOutput(request_id=self.ids[child], new_token_ids=tokens, finish_reason=finish, **more)
        return self.process([news])

    def process(self, outputs: list[EngineOutput]) -> ProcessedStep:
        done = self.output.process(EngineOutputs(outputs=outputs))
        self.received += done.outputs
        self.aborted += done.to_abort
        return done

    def feed_text(self, text: str, last: FinishReason | None = FinishReason.LENGTH, step: int = 1) -> None:
        """The bytes of `text`, `step` tokens at a time, as long as the request is open."""
        ids = list(text.encode())
        for start in range(0, len(ids), step):
            ends = start + step >= len(ids)
            if self.output.num_open:
                self.feed(ids[start : start + step], last if ends else None)

    @property
    def answers(self) -> list[CompletionOutput]:
        return [output.outputs[0] for output in self.received if output.outputs]

    @property
    def joined(self) -> str:
        return "".join(answer.text for answer in self.answers)


KINDS = pytest.mark.parametrize("kind", [CUMULATIVE, DELTA, FINAL])


def text_of(front: Front, kind: RequestOutputKind) -> str:
    return front.joined if kind is DELTA else front.answers[-1].text


@KINDS
@pytest.mark.parametrize("step", [1, 3, 100])
def test_a_stop_string_is_cut_and_no_piece_of_it_ever_shows(kind: RequestOutputKind, step: int) -> None:
    """A13."""
    front = Front(stop=["DEFGHIJ"], output_kind=kind)
    front.feed_text("ABC DEFGHIJ tail", step=step)
    assert text_of(front, kind) == "ABC "
    assert all("D" not in answer.text for answer in front.answers)
    last = front.answers[-1]
    assert (last.finish_reason, last.stop_reason) == ("stop", "DEFGHIJ")
    ids = [i for answer in front.answers for i in answer.token_ids] if kind is DELTA else last.token_ids
    assert bytes(ids) == b"ABC DEFGHIJ"
    assert front.output.num_open == 0


@KINDS
def test_a_stop_string_can_be_part_of_the_answer(kind: RequestOutputKind) -> None:
    front = Front(stop="STOP", include_stop_str_in_output=True, output_kind=kind)
    front.feed_text("ab STOP cd")
    assert text_of(front, kind) == "ab STOP"


def test_a_stop_string_aborts_in_the_engine_unless_it_ended_there_too() -> None:
    front = Front(stop="c")
    front.feed_text("abcd", last=None)
    assert front.aborted == front.ids
    ended = Front(stop="c")
    ended.feed_text("abc", last=FinishReason.LENGTH)
    assert ended.aborted == []
    assert ended.answers[-1].finish_reason == "stop"


def test_late_tokens_after_a_stop_are_ignored() -> None:
    front = Front(stop="c")
    front.feed_text("abc", last=None)
    assert front.feed([100]).outputs == []


def test_what_might_have_become_a_stop_string_comes_at_the_end() -> None:
    front = Front(stop="STOP")
    front.feed_text("abSTO")
    assert front.joined == "abSTO"
    assert front.answers[-1].finish_reason == "length"


def test_characters_are_never_split() -> None:
    """A16."""
    front = Front()
    front.feed_text("日本🙂é ok")
    assert front.joined == "日本🙂é ok"
    assert all("\ufffd" not in answer.text for answer in front.answers)


@KINDS
@pytest.mark.parametrize("step", [1, 7, 64, 1000])
def test_a_long_text_is_whole_however_often_it_is_looked_at(kind: RequestOutputKind, step: int) -> None:
    """Tokens are decoded in batches where nobody looks at the text."""
    text = "an 🙂 é, " * 35
    front = Front(output_kind=kind, max_tokens=500)
    front.feed_text(text, step=step)
    assert text_of(front, kind) == text


def test_an_answer_cut_inside_a_character_ends_the_same_in_all_modes() -> None:
    """A16."""
    texts = set()
    for kind in (CUMULATIVE, DELTA, FINAL):
        front = Front(output_kind=kind)
        ids = list("日🙂".encode())[:-2]
        for position, token in enumerate(ids):
            front.feed([token], FinishReason.LENGTH if position == len(ids) - 1 else None)
        texts.add(text_of(front, kind))
    assert texts == {"日\ufffd"}


@KINDS
def test_the_stop_token_is_in_the_ids_but_not_in_the_text(kind: RequestOutputKind) -> None:
    front = Front(stop_token_ids=[ord("c")], output_kind=kind)
    front.feed([97])
    front.feed([ord("c")], FinishReason.STOP, stop_reason=ord("c"))
    last = front.answers[-1]
    assert text_of(front, kind) == "a"
    assert (last.finish_reason, last.stop_reason) == ("stop", ord("c"))
    assert last.token_ids[-1] == ord("c")


def test_a_stop_token_shows_when_asked() -> None:
    front = Front(stop_token_ids=[ord("c")], include_stop_str_in_output=True)
    front.feed([97, ord("c")], FinishReason.STOP, stop_reason=ord("c"))
    assert front.joined == "ac"


@pytest.mark.parametrize(("skip", "text"), [(True, "ab"), (False, "a<eos>b")])
@KINDS
def test_special_tokens_show_or_not_in_all_modes(skip: bool, text: str, kind: RequestOutputKind) -> None:
    """A38."""
    front = Front(skip_special_tokens=skip, ignore_eos=True, output_kind=kind)
    for token in (97, EOS):
        front.feed([token])
    front.feed([98], FinishReason.LENGTH)
    assert text_of(front, kind) == text


def logprobs(token: int, others: list[int]) -> TokenLogprobs:
    return TokenLogprobs([token, *others], [-0.5, *(-1.0 - i for i in range(len(others)))], 2)


def test_logprob_tokens_are_plain_text_and_joined_are_the_text() -> None:
    """A18."""
    front = Front(logprobs=2)
    ids = list("今天 é ok".encode())
    for position, token in enumerate(ids):
        last = FinishReason.LENGTH if position == len(ids) - 1 else None
        front.feed([token], last, new_logprobs=[logprobs(token, [104, 105])])
    positions = [position for answer in front.answers for position in answer.logprobs or []]
    chosen = [next(iter(position.values())) for position in positions]
    assert "".join(one.decoded_token or "" for one in chosen) == front.joined == "今天 é ok"
    assert [list(position) for position in positions] == [[token, 104, 105] for token in ids]
    assert all(one.rank == 2 and one.logprob == -0.5 for one in chosen)
    assert [one.rank for one in list(positions[-1].values())[1:]] == [1, 2]
    assert front.answers[-1].cumulative_logprob == pytest.approx(-0.5 * len(ids))


@pytest.mark.parametrize("kind", [CUMULATIVE, DELTA, FINAL])
def test_logprob_tokens_spell_the_text_at_both_ends_of_an_answer(kind: RequestOutputKind) -> None:
    """A18: the first token completes a character of the prompt, the last one leaves one unfinished."""
    prompt, ids = list("a🙂".encode())[:-2], [*list("🙂".encode())[2:], *b"b", *"é".encode()[:1]]
    front = Front(prompt=prompt, logprobs=0, output_kind=kind)
    for position, token in enumerate(ids):
        last = FinishReason.LENGTH if position == len(ids) - 1 else None
        front.feed([token], last, new_logprobs=[logprobs(token, [])])
    answers = front.answers if kind is DELTA else front.answers[-1:]
    tokens = [next(iter(p.values())).decoded_token for answer in answers for p in answer.logprobs or []]
    assert tokens == ["", "🙂", "b", "\ufffd"]
    assert "".join(map(str, tokens)) == text_of(front, kind)


def test_the_chosen_token_keeps_its_text_when_it_is_a_top_one_too() -> None:
    front = Front(logprobs=1)
    front.feed([97], new_logprobs=[TokenLogprobs([97, 97], [-0.5, -0.5], 1)])
    front.feed([98], FinishReason.LENGTH, new_logprobs=[TokenLogprobs([98, 97], [-0.5, -0.1], 2)])
    first, second = (answer.logprobs or [] for answer in front.answers)
    assert [(token, one.decoded_token, one.rank) for token, one in first[0].items()] == [(97, "a", 1)]
    assert [(token, one.decoded_token, one.rank) for token, one in second[0].items()] == [
        (98, "b", 2),
        (97, "a", 1),
    ]


def test_logprobs_end_with_the_tokens_at_a_stop_string() -> None:
    front = Front(stop="b", logprobs=0)
    front.feed([97, 98, 99], new_logprobs=[logprobs(token, []) for token in (97, 98, 99)])
    assert [list(position) for position in front.answers[-1].logprobs or []] == [[97], [98]]
    assert front.answers[-1].token_ids == [97, 98]


@KINDS
def test_prompt_logprobs_come_whole_however_the_prompt_was_chunked(kind: RequestOutputKind) -> None:
    front = Front(prompt="héy", prompt_logprobs=1, output_kind=kind)
    ids = list("héy".encode())
    front.feed([], new_prompt_logprobs=[logprobs(ids[1], [65])])
    assert front.received == []
    front.feed([97], new_prompt_logprobs=[logprobs(token, [65]) for token in ids[2:]])
    front.feed([98], FinishReason.LENGTH)
    told = [output.prompt_logprobs for output in front.received if output.prompt_logprobs is not None]
    assert len(told) == (2 if kind is CUMULATIVE else 1)
    assert told[0][0] is None
    assert [next(iter(position.values())).decoded_token for position in told[0][1:] if position] == [
        "",
        "é",
        "y",
    ]


def test_other_answers_wait_for_the_prompt_logprobs_of_the_first() -> None:
    front = Front(prompt="ab", prompt_logprobs=0, n=2)
    front.feed([97], child=1)
    assert front.received == []
    front.feed([98], new_prompt_logprobs=[logprobs(98, [])])
    assert [(answer.index, answer.text) for answer in front.received[0].outputs] == [(0, "b"), (1, "a")]
    assert front.received[0].prompt_logprobs is not None


@KINDS
def test_n_answers_keep_apart(kind: RequestOutputKind) -> None:
    """A48."""
    front = Front(n=3, output_kind=kind)
    for position, letters in enumerate(("abc", "def", "ghi")):
        outputs = [
            EngineOutput(
                request_id=front.ids[child],
                new_token_ids=[ord(letter)],
                finish_reason=FinishReason.LENGTH if position == child else None,
            )
            for child, letter in enumerate(letters)
            if position <= child
        ]
        front.process(outputs)
    texts = ["", "", ""]
    for output in front.received:
        for answer in output.outputs:
            texts[answer.index] = texts[answer.index] + answer.text if kind is DELTA else answer.text
    assert texts == ["a", "be", "cfi"]
    assert [output.finished for output in front.received][-1]
    assert sum(output.finished for output in front.received) == 1
    assert len(front.received) == (1 if kind is FINAL else 3)


def test_a_refusal_becomes_its_own_kind_of_error_and_ends_all_answers() -> None:
    front = Front(n=2)
    done = front.feed([], FinishReason.ERROR, error="queue full", error_type="overloaded_error")
    assert isinstance(done.failures["r"], OverloadedError)
    assert done.outputs[-1].finished
    assert done.outputs[-1].error == "queue full"
    assert done.to_abort == [front.ids[1]]
    assert front.output.num_open == 0
    assert done.stats.finished[0].finish_reasons == ("error", "error")


def test_abort_and_failure_end_a_request_with_a_last_output() -> None:
    front = Front(n=2)
    front.feed([97])
    done = front.output.abort(["r", "unknown"])
    assert done.to_abort == front.ids
    assert [answer.finish_reason for answer in done.outputs[0].outputs] == ["abort", "abort"]
    other = Front()
    failed = other.output.fail(["r"], EngineDeadError("dead"))
    assert isinstance(failed.failures["r"], EngineDeadError)
    assert other.output.num_open == 0


def test_an_id_cannot_be_open_twice() -> None:
    front = Front()
    request = InputProcessor(fake_config().model, fake_tokenizer()).process("r", "p", SamplingParams())
    with pytest.raises(InvalidRequestError, match="running"):
        front.output.add(request)
    front.output.abort(["r"])
    front.output.add(request)


def test_text_is_not_made_when_not_wanted() -> None:
    front = Front(detokenize=False, stop="b")
    front.feed([97, 98], FinishReason.LENGTH)
    assert (front.joined, front.answers[-1].token_ids) == ("", [97, 98])


def test_counts_and_times() -> None:
    """A96: what is counted is what was handed out."""
    front = Front(prompt="four", stop="c", n=2)
    first = front.feed([97], events={"queued": 1.0, "scheduled": 2.0}, num_cached_tokens=3).stats
    assert (first.num_prompt_tokens, first.num_cached_tokens, first.num_generation_tokens) == (4, 3, 1)
    assert (len(first.times_to_first_token), len(first.inter_token_latencies)) == (1, 0)
    sibling = front.feed([97], child=1).stats
    assert (sibling.num_prompt_tokens, len(sibling.inter_token_latencies)) == (0, 0)
    second = front.feed([98, 99, 100]).stats
    assert (second.num_generation_tokens, len(second.inter_token_latencies)) == (2, 1)
    done = front.feed([97], FinishReason.LENGTH, child=1).stats.finished[0]
    assert done.finish_reasons == ("stop", "length")
    assert done.num_generation_tokens == (3, 2)
    assert (done.num_prompt_tokens, done.n, done.max_tokens) == (4, 2, 100)
    assert (done.metrics.queued_time, done.metrics.scheduled_time) == (1.0, 2.0)


# -- a slow reader ----------------------------------------------------------------------------------------------------


def answer(index: int, text: str, reason: str | None = None) -> CompletionOutput:
    return CompletionOutput(
        index=index, text=text, token_ids=[len(text)], logprobs=[{}], finish_reason=reason
    )


def output(*answers: CompletionOutput, finished: bool = False) -> RequestOutput:
    return RequestOutput("r", None, [1], list(answers), finished)


def test_deltas_that_nobody_took_are_joined() -> None:
    merged = merge_deltas(
        output(answer(1, "b"), answer(0, "a")), output(answer(0, "c", "stop"), finished=True)
    )
    assert [(one.index, one.text, one.token_ids, one.finish_reason) for one in merged.outputs] == [
        (0, "ac", [1, 1], "stop"),
        (1, "b", [1], None),
    ]
    assert merged.outputs[0].logprobs == [{}, {}]
    assert merged.finished


async def take(mailbox: Mailbox) -> RequestOutput:
    return await mailbox.get()


def test_what_was_waiting_is_given_out_before_an_error() -> None:
    import asyncio

    async def scenario() -> None:
        mailbox = Mailbox(delta=True)
        mailbox.put(output(answer(0, "a")))
        mailbox.put(output(answer(0, "b")))
        mailbox.fail(EngineDeadError("dead"))
        assert (await take(mailbox)).outputs[0].text == "ab"
        with pytest.raises(EngineDeadError):
            await take(mailbox)

    asyncio.run(scenario())
