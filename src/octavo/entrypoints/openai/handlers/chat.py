"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from octavo.entrypoints.openai.handlers import generation
from octavo.entrypoints.openai.handlers.logprobs import chat_logprobs, prompt_logprobs_body
from octavo.entrypoints.openai.protocol.chat import (
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionRequest,
)
from octavo.entrypoints.openai.sse import sse_response
from octavo.entrypoints.openai.state import ServerState, new_request_id, server_state
from octavo.types.outputs import CompletionOutput, RequestOutput


@dataclass(frozen=True)
class Answer:
    """What every piece of one answer needs to know."""

    state: ServerState
    body: ChatCompletionRequest
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
    state = server_state(request)
    state.check_open()
    model = state.check_model(body.model)
    state.check_generates()
    prompt = await state.renderer.chat_prompt(body)
    params = body.sampling_params(
        defaults=state.sampling_defaults, max_tokens=body.token_limit, logprobs=body.num_logprobs
    )
    request_id = new_request_id("chatcmpl", request, body.request_id)
    answer = Answer(state, body, request_id, model, state.now())
    outputs = generation.generate(state, body, prompt.token_ids, params, request_id)
    if body.stream:
        return sse_response(_chunks(answer, prompt.echo, await generation.opened(request, outputs)))
    final = await generation.unless_disconnected(request, generation.last_output(outputs))
    return JSONResponse(_completion(answer, prompt.echo, final).model_dump(mode="json"))


def _completion(answer: Answer, echo: str, final: RequestOutput) -> ChatCompletion:
    count = generation.UsageCount(cached_tokens=final.num_cached_tokens)
    count.add_prompt(final)
    count.add_output(final)
    body = answer.body
    return ChatCompletion(
        id=answer.request_id,
        created=answer.created,
        model=answer.model,
        choices=[_choice(answer, echo, choice) for choice in final.outputs],
        usage=count.usage(),
        prompt_logprobs=prompt_logprobs_body(final.prompt_logprobs),
        prompt_token_ids=final.prompt_token_ids if body.return_token_ids else None,
    )


def _choice(answer: Answer, echo: str, choice: CompletionOutput) -> ChatChoice:
    body = answer.body
    return ChatChoice(
        index=choice.index,
        message=AssistantMessage(content=echo + choice.text),
        logprobs=_logprobs(answer, choice),
        finish_reason=choice.finish_reason,
        stop_reason=choice.stop_reason,
        token_ids=choice.token_ids if body.return_token_ids else None,
    )


def _logprobs(answer: Answer, choice: CompletionOutput) -> Any:
    top = answer.body.num_logprobs
    if top is None:
        return None
    return chat_logprobs(answer.state.renderer.tokenizer, choice.token_ids, choice.logprobs, top)


async def _chunks(
    answer: Answer, echo: str, outputs: AsyncGenerator[RequestOutput]
) -> AsyncIterator[dict[str, Any]]:
    """The role first, then text, then each choice's finish in a chunk of its own, then the usage."""
    count = generation.UsageCount()
    started = False
    async for output in outputs:
        count.add_output(output)
        if not started:
            started = True
            count.add_prompt(output)
            count.cached_tokens = output.num_cached_tokens
            for index in range(answer.body.n):
                yield _with_usage(answer, count, _first_chunk(answer, echo, index, output))
        for choice in output.outputs:
            for chunk in _choice_chunks(answer, choice):
                yield _with_usage(answer, count, chunk)
    if answer.body.wants_usage:
        yield answer.head() | {"choices": [], "usage": count.usage().model_dump()}


def _first_chunk(answer: Answer, echo: str, index: int, output: RequestOutput) -> dict[str, Any]:
    chunk = _chunk(answer, index, {"role": answer.state.args.response_role, "content": echo})
    if answer.body.return_token_ids:
        chunk["prompt_token_ids"] = output.prompt_token_ids
    return chunk


def _choice_chunks(answer: Answer, choice: CompletionOutput) -> list[dict[str, Any]]:
    chunks = []
    if choice.text or choice.token_ids:
        logprobs = _logprobs(answer, choice)
        extra: dict[str, Any] = {"logprobs": logprobs.model_dump() if logprobs is not None else None}
        if answer.body.return_token_ids:
            extra["token_ids"] = choice.token_ids
        # A token that only completes part of a character, or is special, brings no text: nothing to say then.
        if choice.text or logprobs is not None or answer.body.return_token_ids:
            chunks.append(_chunk(answer, choice.index, {"content": choice.text}, **extra))
    if choice.finish_reason is not None:
        end = {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
        chunks.append(_chunk(answer, choice.index, {}, **end))
    return chunks


def _chunk(answer: Answer, index: int, delta: dict[str, Any], **extra: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | extra
    return answer.head() | {"choices": [choice]}


def _with_usage(answer: Answer, count: generation.UsageCount, chunk: dict[str, Any]) -> dict[str, Any]:
    if answer.body.wants_continuous_usage:
        return chunk | {"usage": count.usage().model_dump()}
    return chunk | {"usage": None} if answer.body.wants_usage else chunk
