"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from octavo.engine.input import check_logprobs
from octavo.entrypoints.openai.handlers import generation
from octavo.entrypoints.openai.handlers.chat_events import deltas, message
from octavo.entrypoints.openai.handlers.logprobs import chat_logprobs, prompt_logprobs_body
from octavo.entrypoints.openai.protocol.chat import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionRequest,
    ChoiceLogprobs,
)
from octavo.entrypoints.openai.protocol.names import named
from octavo.entrypoints.openai.renderer import ChatPrompt
from octavo.entrypoints.openai.sse import sse_response
from octavo.entrypoints.openai.state import ServerState, new_request_id, server_state
from octavo.entrypoints.parsers.events import Event, ToolCallStart, collect, parsed
from octavo.types.outputs import CompletionOutput, RequestOutput


@dataclass(frozen=True)
class Answer:
    """What every piece of one answer needs to know."""

    state: ServerState
    body: ChatCompletionRequest
    prompt: ChatPrompt
    request_id: str
    model: str
    created: int

    def head(self) -> dict[str, Any]:
        """Fields that open each chunk."""
        return {
            "id": self.request_id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
        }


async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
    """Render the conversation, let the engine continue it."""
    state = server_state(request, body.model)
    state.check_open()
    model = state.check_model(body.model)
    state.check_generates()
    if body.top_logprobs is not None:
        check_logprobs("top_logprobs", body.top_logprobs, state.engine.config.model)
    prompt = await state.renderer.chat_prompt(body)
    params = generation.chat_params(state, body, prompt)
    request_id = new_request_id("chatcmpl", request, body.request_id)
    answer = Answer(state, body, prompt, request_id, model, state.now())
    outputs = generation.generate(state, body, prompt.token_ids, params, request_id)
    if body.stream:
        with named(body.renamed_fields):
            opened = await generation.opened(request, outputs)
        return sse_response(_chunks(answer, opened))
    with named(body.renamed_fields):
        final = await generation.unless_disconnected(request, generation.last_output(outputs))
    return JSONResponse(_completion(answer, final).model_dump(mode="json"))


def _completion(answer: Answer, final: RequestOutput) -> ChatCompletion:
    count = generation.UsageCount(cached_tokens=final.num_cached_tokens)
    count.add_prompt(final)
    count.add_output(final)
    body = answer.body
    streams = [ChoiceStream(answer, choice.index) for choice in final.outputs]
    choices = [stream.whole(choice) for stream, choice in zip(streams, final.outputs, strict=True)]
    count.reasoning_tokens = sum(stream.reasoning_tokens for stream in streams)
    return ChatCompletion(
        id=answer.request_id,
        created=answer.created,
        model=answer.model,
        choices=choices,
        usage=count.usage(),
        prompt_logprobs=prompt_logprobs_body(final.prompt_logprobs),
        prompt_token_ids=final.prompt_token_ids if body.return_token_ids else None,
    )


class ChoiceStream:
    """One of the n answers: its parser, and what that has said so far."""

    def __init__(self, answer: Answer, index: int) -> None:
        self._answer = answer
        self._index = index
        self._parser = answer.prompt.new_parser()
        self._called = False

    def whole(self, choice: CompletionOutput) -> ChatChoice:
        """The answer at its end: the fold of what a stream would have said."""
        body = self._answer.body
        return ChatChoice(
            index=self._index,
            message=message(collect(self._events(choice)), self._answer.prompt.echo, self._role),
            logprobs=_logprobs(self._answer, choice),
            finish_reason=self._finish_reason(choice),
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if body.return_token_ids else None,
        )

    def first_chunk(self, output: RequestOutput) -> dict[str, Any]:
        """Says the role."""
        chunk = self._chunk({"role": self._role, "content": self._answer.prompt.echo})
        if self._answer.body.return_token_ids:
            chunk["prompt_token_ids"] = output.prompt_token_ids
        return chunk

    def chunks(self, choice: CompletionOutput) -> list[dict[str, Any]]:
        """What an output adds: a chunk for each thing said, then the finish in one of its own."""
        said = deltas(self._events(choice))
        extra = self._extra(choice)
        # A token that only completes part of a character, or is special, brings no text: nothing to say then.
        if not said and any(value is not None for value in extra.values()):
            said = [{"content": ""}]
        chunks = [self._chunk(delta, **(extra if at == 0 else {})) for at, delta in enumerate(said)]
        if choice.finish_reason is not None:
            end = {"finish_reason": self._finish_reason(choice), "stop_reason": choice.stop_reason}
            chunks.append(self._chunk({}, **end))
        return chunks

    @property
    def reasoning_tokens(self) -> int:
        """Tokens so far that were reasoning."""
        return self._parser.reasoning_tokens

    @property
    def _role(self) -> str:
        return self._answer.state.args.response_role

    def _events(self, choice: CompletionOutput) -> list[Event]:
        ended = choice.finish_reason is not None
        events = parsed(self._parser, choice.text, choice.token_ids, ended=ended)
        self._called = self._called or any(isinstance(event, ToolCallStart) for event in events)
        return events

    def _finish_reason(self, choice: CompletionOutput) -> str | None:
        """The engine's, but an answer that ended by itself after a call ended for the call."""
        return "tool_calls" if self._called and choice.finish_reason == "stop" else choice.finish_reason

    def _extra(self, choice: CompletionOutput) -> dict[str, Any]:
        """What rides on an output's first chunk."""
        if not choice.token_ids:
            return {}
        logprobs = _logprobs(self._answer, choice)
        extra: dict[str, Any] = {"logprobs": logprobs.model_dump() if logprobs is not None else None}
        return extra | {"token_ids": choice.token_ids} if self._answer.body.return_token_ids else extra

    def _chunk(self, delta: dict[str, Any], **extra: Any) -> dict[str, Any]:
        choice = {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None} | extra
        return self._answer.head() | {"choices": [choice]}


def _logprobs(answer: Answer, choice: CompletionOutput) -> ChoiceLogprobs | None:
    style = generation.logprob_style(answer.body, answer.body.num_logprobs)
    if style is None:
        return None
    return chat_logprobs(answer.state.renderer.tokenizer, choice.token_ids, choice.logprobs, style)


async def _chunks(answer: Answer, outputs: AsyncGenerator[RequestOutput]) -> AsyncIterator[dict[str, Any]]:
    """The role first, then what is said, then each choice's finish in a chunk of its own, then the usage."""
    count = generation.UsageCount()
    choices = [ChoiceStream(answer, index) for index in range(answer.body.n)]
    started = False
    async for output in outputs:
        count.add_output(output)
        if not started:
            started = True
            count.add_prompt(output)
            count.cached_tokens = output.num_cached_tokens
            for choice in choices:
                yield _with_usage(answer, count, choice.first_chunk(output))
        for news in output.outputs:
            chunks = choices[news.index].chunks(news)
            count.reasoning_tokens = sum(choice.reasoning_tokens for choice in choices)
            for chunk in chunks:
                yield _with_usage(answer, count, chunk)
    if answer.body.wants_usage:
        yield answer.head() | {"choices": [], "usage": count.usage().model_dump()}


def _with_usage(answer: Answer, count: generation.UsageCount, chunk: dict[str, Any]) -> dict[str, Any]:
    if answer.body.wants_continuous_usage:
        return chunk | {"usage": count.usage().model_dump()}
    return chunk | {"usage": None} if answer.body.wants_usage else chunk
