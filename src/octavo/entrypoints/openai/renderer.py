"""From bodies to token ids: chat template and tokenizer, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.completion import CompletionRequest
from octavo.entrypoints.openai.protocol.tokens import TokenizeRequest
from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers import Tokenizer
from octavo.tokenizers.chat import choose_template, render_chat
from octavo.tokenizers.chat_format import prepare_messages

T = TypeVar("T")

# Rendering and tokenising hold the interpreter for most of their time: more threads would only add switching.
RENDER_THREADS = 2
# Names that `render_chat` binds itself.
RESERVED = frozenset(
    {
        "template", "messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
        "special_tokens", "limits",
    }
)  # fmt: skip


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation; `echo` is the text to repeat before the answer (a continued message with `echo`)."""

    token_ids: list[int]
    echo: str = ""


class Renderer:
    """Turns request bodies into prompts.

    Args:
        templates: The model's own chat templates by name, or the one that the server was told to use.
    """

    def __init__(self, tokenizer: Tokenizer, templates: Mapping[str, str], args: ServerArgs) -> None:
        self.tokenizer = tokenizer
        self._templates = templates
        self._args = args
        self._pool = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="render")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def chat_prompt(self, body: ChatCompletionRequest) -> ChatPrompt:
        """The ids of a conversation.

        Raises:
            InvalidRequestError: the template refuses it, or there is none.
        """
        return await self._run(lambda: self._chat_prompt(body))

    async def completion_prompts(self, body: CompletionRequest) -> list[list[int]]:
        """The ids of each prompt, in order."""
        return await self._run(
            lambda: [self._ids(prompt, body.add_special_tokens) for prompt in body.prompts]
        )

    async def tokenize(self, body: TokenizeRequest) -> list[int]:
        """The ids of a text or of a conversation."""
        return await self._run(lambda: self._tokenize(body))

    def echo_text(self, body: CompletionRequest, prompt_token_ids: list[int]) -> str:
        """The prompt as `echo` repeats it."""
        return self.tokenizer.decode(prompt_token_ids, skip_special_tokens=body.skip_special_tokens)

    def _chat_prompt(self, body: ChatCompletionRequest) -> ChatPrompt:
        ids = self._render(
            body,
            body.visible_tools,
            documents=body.documents,
            add_generation_prompt=body.opens_assistant_turn,
            add_special_tokens=body.add_special_tokens,
        )
        return ChatPrompt(ids, _last_text(body.messages) if body.echo else "")

    def _tokenize(self, body: TokenizeRequest) -> list[int]:
        if body.messages is None:
            return self._ids(body.prompt or "", body.add_special_tokens is not False)
        return self._render(
            body,
            body.tools,
            documents=None,
            add_generation_prompt=body.add_generation_prompt and not body.continue_final_message,
            add_special_tokens=bool(body.add_special_tokens),
        )

    def _render(
        self,
        body: ChatCompletionRequest | TokenizeRequest,
        tools: list[dict[str, Any]] | None,
        *,
        documents: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        add_special_tokens: bool,
    ) -> list[int]:
        """The ids of a conversation as its template writes it."""
        extras = body.chat_template_kwargs or {}
        taken = sorted(RESERVED & set(extras))
        if taken:
            message = f"chat_template_kwargs must not hold {taken[0]!r}, which is a field of its own"
            raise InvalidRequestError(message, param="chat_template_kwargs")
        template = self._template_for(body.chat_template, bool(tools))
        text = render_chat(
            template,
            prepare_messages(body.messages or [], template),
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=body.continue_final_message,
            special_tokens=self.tokenizer.special_tokens,
            **extras,
        )
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _template_for(self, asked: str | None, tools: bool) -> str:
        if asked is None:
            return choose_template(self._templates, tools=tools)
        if not self._args.trust_request_chat_template:
            message = "chat_template in a request needs a server started with --trust-request-chat-template"
            raise InvalidRequestError(message, param="chat_template")
        return asked

    def _ids(self, prompt: str | list[int], add_special_tokens: bool) -> list[int]:
        if isinstance(prompt, list):
            return prompt
        return self.tokenizer.encode(prompt, add_special_tokens=add_special_tokens)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _last_text(messages: list[dict[str, Any]]) -> str:
    content = messages[-1].get("content")
    return content if isinstance(content, str) else ""
