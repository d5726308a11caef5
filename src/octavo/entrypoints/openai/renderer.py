"""From bodies to token ids: chat template and tokenizer, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from octavo.engine.input import check_text, truncated
from octavo.engine.pairs import pair_prompt
from octavo.engine.pooling_input import truncated_ids
from octavo.entrypoints.openai.answer_forms import AnswerForms
from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.completion import CompletionRequest
from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.entrypoints.openai.protocol.pooling import InputFields
from octavo.entrypoints.openai.protocol.tokens import TokenizeRequest
from octavo.entrypoints.parsers.events import AnswerParser, PassThrough
from octavo.entrypoints.parsers.selection import shows_tools
from octavo.entrypoints.parsers.told import with_calls_spelled, with_tools
from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers import Tokenizer, TokenStream
from octavo.tokenizers.chat import choose_template, render_chat
from octavo.tokenizers.chat_format import prepare_messages

T = TypeVar("T")

# Rendering and tokenising hold the interpreter for most of their time: more threads would only add switching.
RENDER_THREADS = 2
# Texts that take longer to read have a thread of their own, so that short ones never wait for two of them.
LONG_TEXT = 1 << 17
# Characters that `/tokenize` counts; about five seconds of work.
MAX_TOKENIZE_CHARACTERS = 1 << 22
# Characters of all texts of one request for vectors.
MAX_POOLED_CHARACTERS = 1 << 23
# Names that `render_chat` binds itself.
RESERVED = frozenset(
    {
        "template", "messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
        "special_tokens", "limits",
    }
)  # fmt: skip


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation.

    Attributes:
        echo: Text to repeat before the answer (a continued message with `echo`).
        shows_special_tokens: The engine must spell control tokens out: the parser needs them.
        new_parser: Makes what takes one answer to this prompt apart; each of the n answers needs its own.
    """

    token_ids: list[int]
    echo: str = ""
    shows_special_tokens: bool = False
    new_parser: Callable[[], AnswerParser] = PassThrough


class Renderer:
    """Turns request bodies into prompts.

    Args:
        templates: The model's own chat templates by name, or the one that the server was told to use.
        max_model_len: Tokens that a prompt can have at most; a text that is certainly longer is refused unread.
    """

    def __init__(
        self, tokenizer: Tokenizer, templates: Mapping[str, str], args: ServerArgs, max_model_len: int
    ) -> None:
        self.tokenizer = tokenizer
        self.templates = templates
        self._args = args
        self._max_model_len = max_model_len
        self._forms = AnswerForms(args)
        self._pool = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="render")
        self._long_texts = ThreadPoolExecutor(1, thread_name_prefix="render-long")

    def close(self) -> None:
        for pool in (self._pool, self._long_texts):
            pool.shutdown(wait=False, cancel_futures=True)

    async def chat_prompt(self, body: ChatCompletionRequest) -> ChatPrompt:
        """The ids of a conversation.

        Raises:
            InvalidRequestError: the template refuses it, or there is none, or it is too long; or calls are asked for
                whose format is not known.
        """
        opens_turn = body.opens_assistant_turn
        tools = self._shown_tools(body)
        form = self._forms.of(body, self._template_for(body.chat_template, bool(tools)))
        render = partial(
            self._render, body, tools, documents=body.documents, add_generation_prompt=opens_turn
        )
        text = await self._run(self._pool, render)
        (ids,) = await self._encode([text], body.add_special_tokens, body.truncate_prompt_tokens is None)
        ids = self._truncated(body, body.token_limit, ids)
        return ChatPrompt(
            ids,
            self._echoed(body.messages[-1], opens_turn) if body.echo else "",
            not (form.is_plain and body.skip_special_tokens),
            partial(form.parser, self.tokenizer, text, ids, opens_turn=opens_turn),
        )

    def _shown_tools(self, body: ChatCompletionRequest) -> list[dict[str, Any]] | None:
        """Tools that the template shows to the model."""
        hides = self._args.exclude_tools_when_tool_choice_none and body.choice.mode == "none"
        return None if hides else body.tools

    async def completion_prompts(self, body: CompletionRequest) -> list[list[int]]:
        """The ids of each prompt, in order.

        Raises:
            InvalidRequestError: one is too long.
        """
        texts = [prompt for prompt in body.prompts if isinstance(prompt, str)]
        whole = body.truncate_prompt_tokens is None
        encoded = iter(await self._encode(texts, body.add_special_tokens, whole))
        prompts = [next(encoded) if isinstance(prompt, str) else prompt for prompt in body.prompts]
        return [self._truncated(body, body.max_tokens, ids) for ids in prompts]

    def _truncated(self, body: SamplingFields, max_tokens: int | None, ids: list[int]) -> list[int]:
        """A prompt cut to `truncate_prompt_tokens`: its end stays, or its beginning. See `engine.input.truncated`."""
        room = self._max_model_len - (max_tokens or 1)
        return truncated(ids, body.truncate_prompt_tokens, body.truncation_side, room)

    def _echoed(self, last: dict[str, Any], opens_turn: bool) -> str:
        """What `echo` repeats before an answer: the last message, if the answer has the same role (as in vLLM)."""
        content, role = last.get("content"), last.get("role")
        same_role = not opens_turn or role == self._args.response_role
        return content if isinstance(content, str) and same_role else ""

    async def pooling_prompts(self, body: InputFields, limit: int | None) -> list[list[int]]:
        """The ids of each input, or of the one conversation.

        Args:
            body: The request.
            limit: Tokens that texts are cut to; None: they are not.

        Raises:
            InvalidRequestError: one is too long.
        """
        if body.messages is not None:
            render = partial(
                self._render, body, None, documents=None, add_generation_prompt=body.add_generation_prompt
            )
            text = await self._run(self._pool, render)
            return await self.text_ids([text], add_special_tokens=False, limit=limit)
        texts = [one for one in body.inputs if isinstance(one, str)]
        ids = iter(await self.text_ids(texts, add_special_tokens=body.add_special_tokens, limit=limit))
        return [next(ids) if isinstance(one, str) else one for one in body.inputs]

    async def text_ids(
        self, texts: Sequence[str], *, add_special_tokens: bool = True, limit: int | None = None
    ) -> list[list[int]]:
        """The ids of each text, cut to `limit` tokens if there is one.

        Raises:
            InvalidRequestError: one is too long.
        """

        def read(text: str) -> list[int]:
            if limit is None:
                check_text(self.tokenizer, text, self._max_model_len)
            if add_special_tokens:
                return truncated_ids(self.tokenizer, text, limit)
            return self.tokenizer.encode(text, add_special_tokens=False)[:limit]

        _check_letters(sum(map(len, texts)))
        return await self._run(self._pool_for(texts), lambda: [read(text) for text in texts])

    async def pair_ids(self, pairs: Sequence[tuple[str, str]], limit: int | None) -> list[list[int]]:
        """The ids of each pair of texts as one prompt, cut to `limit` tokens if there is one."""

        def read(pair: tuple[str, str]) -> list[int]:
            for text in pair if limit is None else ():
                check_text(self.tokenizer, text, self._max_model_len)
            return pair_prompt(self.tokenizer, *pair, limit)["prompt_token_ids"]

        texts = [text for pair in pairs for text in pair]
        _check_letters(sum(map(len, texts)))
        return await self._run(self._pool_for(texts), lambda: [read(pair) for pair in pairs])

    async def shortened(self, texts: Sequence[str], limit: int) -> list[str]:
        """The texts, those of more than `limit` tokens cut to that."""

        def read(text: str) -> str:
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            return text if len(ids) <= limit else self.tokenizer.decode(ids[:limit])

        _check_letters(sum(map(len, texts)))
        return await self._run(self._pool_for(texts), lambda: [read(text) for text in texts])

    async def tokenize(self, body: TokenizeRequest) -> list[int]:
        """The ids of a text or of a conversation.

        Raises:
            InvalidRequestError: as for `chat_prompt`; here a text may be longer than a prompt.
        """
        text, add_special_tokens = body.prompt or "", body.add_special_tokens is not False
        if body.messages is not None:
            opens_turn = body.add_generation_prompt and not body.continue_final_message
            render = partial(self._render, body, body.tools, documents=None, add_generation_prompt=opens_turn)
            text, add_special_tokens = await self._run(self._pool, render), bool(body.add_special_tokens)
        _check_length(text)
        encode = partial(self.tokenizer.encode, text, add_special_tokens=add_special_tokens)
        return await self._run(self._pool_for([text]), encode)

    def echo_text(self, body: CompletionRequest, prompt_token_ids: list[int]) -> str:
        """The prompt as `echo` repeats it: a character that it leaves half said is for the answer to complete."""
        stream = TokenStream(self.tokenizer, skip_special_tokens=body.skip_special_tokens)
        text = stream.push_all(prompt_token_ids)
        return text + stream.finish() if body.max_tokens == 0 else text

    async def _encode(
        self, texts: list[str], add_special_tokens: bool, whole: bool = True
    ) -> list[list[int]]:
        """The ids of each prompt, none of which is certainly too long to stay `whole`."""

        def read(text: str) -> list[int]:
            if whole:
                check_text(self.tokenizer, text, self._max_model_len)
            _check_length(text)
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

        return await self._run(self._pool_for(texts), lambda: [read(text) for text in texts])

    def _pool_for(self, texts: Sequence[str]) -> ThreadPoolExecutor:
        return self._long_texts if sum(map(len, texts)) > LONG_TEXT else self._pool

    def _render(
        self,
        body: ChatCompletionRequest | TokenizeRequest | InputFields,
        tools: list[dict[str, Any]] | None,
        *,
        documents: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
    ) -> str:
        """A conversation as its template writes it."""
        given = (
            body.template_arguments if isinstance(body, ChatCompletionRequest) else body.chat_template_kwargs
        )
        extras = given or {}
        taken = sorted(RESERVED & set(extras))
        if taken:
            message = f"chat_template_kwargs must not hold {taken[0]!r}, which is a field of its own"
            raise InvalidRequestError(message, param="chat_template_kwargs")
        template = self._template_for(body.chat_template, bool(tools))
        return render_chat(
            template,
            _in_words(prepare_messages(body.messages or [], template), tools, template),
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=body.continue_final_message,
            special_tokens=self.tokenizer.special_tokens,
            **extras,
        )

    def _template_for(self, asked: str | None, tools: bool) -> str:
        if asked is None:
            return choose_template(self.templates, tools=tools)
        if not self._args.trust_request_chat_template:
            message = "chat_template in a request needs a server started with --trust-request-chat-template"
            raise InvalidRequestError(message, param="chat_template")
        return asked

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _in_words(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, template: str
) -> list[dict[str, Any]]:
    """The messages, with tools and calls in words where the template would pass over them."""
    if "tool_calls" not in template:
        messages = with_calls_spelled(messages)
    return with_tools(messages, tools) if tools and not shows_tools(template) else messages


def _check_letters(count: int) -> None:
    """Raises: InvalidRequestError for more than one request may ask to be read."""
    if count > MAX_POOLED_CHARACTERS:
        raise InvalidRequestError(
            f"The texts have {count} characters in all; at most {MAX_POOLED_CHARACTERS} are taken in one request.",
            param="prompt",
        )


def _check_length(text: str) -> None:
    if len(text) > MAX_TOKENIZE_CHARACTERS:
        message = f"the text has {len(text)} characters; at most {MAX_TOKENIZE_CHARACTERS} are taken"
        raise InvalidRequestError(message, param="prompt")
