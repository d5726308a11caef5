"""Chat templates: from messages to the text of a prompt, byte for byte as transformers' `apply_chat_template`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes

from octavo.lib.errors import CheckpointError, InvalidRequestError
from octavo.tokenizers.chat_sandbox import BoundedEnvironment, Budget, Limits, end_budget, use_budget

Message = dict[str, Any]

DEFAULT_LIMITS = Limits()
_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def choose_template(templates: Mapping[str, str], *, tools: bool = False, name: str | None = None) -> str:
    """The template for a request: the named one, else "tool_use" if there are tools, else "default".

    Raises:
        InvalidRequestError: There is none; names those there are.
    """
    if name is not None:
        if name not in templates:
            raise InvalidRequestError(
                f"The model has no chat template {name!r}; it has: {', '.join(sorted(templates)) or 'none'}.",
                param="chat_template",
            )
        return templates[name]
    for candidate in ("tool_use", "default") if tools else ("default",):
        if candidate in templates:
            return templates[candidate]
    raise InvalidRequestError(
        f"The model has no default chat template (it has: {', '.join(sorted(templates)) or 'none'}). "
        "Use completions, or give a template with --chat-template.",
        param="chat_template",
    )


def check_template(template: str, file: str | None = None) -> None:
    """Compile a template and keep the result.

    Raises:
        CheckpointError: It is not valid and `file`, which it comes from, is given.
        InvalidRequestError: It is not valid, and comes from a request.
    """
    try:
        _compile(template)
    except InvalidRequestError as e:
        if file is None:
            raise
        raise CheckpointError(e.message, file=file) from e


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
    special_tokens: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **kwargs: Any,
) -> str:
    """The prompt of a conversation. Takes time: run it off the event loop.

    Encode the result with `add_special_tokens=False`: what the model expects before a text, the template writes.

    Args:
        template: A jinja2 template.
        messages: Role, content and more, as the template expects. A key without a value (None), and an empty list
            of tool calls, count as absent.
        tools: JSON schemas of tools.
        documents: Texts for retrieval.
        add_generation_prompt: Open the assistant's turn; by default yes, unless the last message is continued.
        continue_final_message: Leave the last message open, for the model to continue it.
        special_tokens: `Tokenizer.special_tokens`.
        limits: Time, steps and sizes.
        kwargs: More variables; they go before special tokens of the same name.

    Raises:
        InvalidRequestError: The template refuses the conversation (with its own words), is not valid, or exceeds
            the limits; or the flags contradict each other.
    """
    if not messages:
        raise InvalidRequestError("A chat needs at least one message.", param="messages")
    if add_generation_prompt and continue_final_message:
        raise InvalidRequestError(
            "continue_final_message and add_generation_prompt exclude each other.",
            param="continue_final_message",
        )
    if add_generation_prompt is None:
        add_generation_prompt = not continue_final_message
    given = {**(special_tokens or {}), **kwargs, "tools": tools, "documents": documents}
    try:
        chat = [_normalized(message) for message in messages]
        variables = {name: plain(value) for name, value in given.items()}
    except RecursionError as e:
        raise InvalidRequestError("A message or a tool is nested too deeply.", param="messages") from e
    tagged = _tag_final_message(chat, template) if continue_final_message else None
    variables |= {"messages": chat, "add_generation_prompt": add_generation_prompt}
    text = _render(template, variables, limits)
    return text if tagged is None else _cut_at_tag(text, tagged)


def plain(value: Any) -> Any:
    """A copy in JSON's types, which is all that a template may touch."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    # Of a subclass (an enum, say) only the plain value is kept, however it writes itself.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return f"<{type(value).__name__}>"


def _normalized(message: Mapping[str, Any]) -> Message:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(
            f"A message must be an object, but one is of type {type(message).__name__}.", param="messages"
        )
    kept: Message = {key: value for key, value in plain(message).items() if value is not None}
    if kept.get("tool_calls") == []:
        del kept["tool_calls"]
    reasoning = next((kept[key] for key in _REASONING_FIELDS if key in kept), None)
    # Templates disagree on the name under which they read what the assistant thought.
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def _tag_final_message(chat: list[Message], template: str) -> str:
    """Mark the end of the last message; returns its text."""
    content = chat[-1].get("content")
    if content is None or "content" not in template:
        raise InvalidRequestError(
            "continue_final_message needs a last message with content.", param="continue_final_message"
        )
    if isinstance(content, str):
        chat[-1]["content"] = content + _CONTINUE_TAG
        return content
    for part in reversed(content) if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text: str = part["text"]
            part["text"] = text + _CONTINUE_TAG
            return text
    raise InvalidRequestError(
        "continue_final_message needs a last message with text.", param="continue_final_message"
    )


def _cut_at_tag(text: str, final: str) -> str:
    tag = _CONTINUE_TAG.strip()
    if final.strip() not in text or tag not in text:
        raise InvalidRequestError(
            "continue_final_message is set, but the chat template changes or leaves out the last message.",
            param="continue_final_message",
        )
    at = text.rindex(tag)
    kept = text[:at]
    # Where the template strips messages, the tag's own space is gone, and so must the message's trailing ones be.
    return kept if text.startswith(_CONTINUE_TAG, at) else kept.rstrip()


def _render(template: str, variables: Mapping[str, Any], limits: Limits) -> str:
    if len(template) > limits.template_characters:
        raise InvalidRequestError(
            f"The chat template has {len(template)} characters; at most {limits.template_characters} are allowed.",
            param="chat_template",
        )
    compiled = _compile(template)
    budget = Budget(limits)
    token = use_budget(budget)
    parts: list[str] = []
    size = 0
    try:
        for part in compiled.generate(variables):
            size += len(part)
            budget.check_size(size)
            parts.append(part)
    except jinja2.TemplateError as e:
        raise InvalidRequestError(
            e.message or "The chat template refuses this chat.", param="messages"
        ) from e
    except Exception as e:  # whatever the template did with values that it did not expect
        raise InvalidRequestError(
            f"The chat template cannot render this chat: {type(e).__name__}: {e}", param="messages"
        ) from e
    finally:
        end_budget(token)
    return "".join(parts)


@lru_cache(maxsize=256)
def _compile(template: str) -> jinja2.Template:
    with _syntax_errors():
        return BoundedEnvironment().from_string(template)


def parse_template(template: str) -> nodes.Template:
    """The syntax tree of a template.

    Raises:
        InvalidRequestError: The template is not valid; names the line.
    """
    with _syntax_errors():
        return BoundedEnvironment().parse(template)


@contextmanager
def _syntax_errors() -> Iterator[None]:
    """Within the default limits (constants are worked out when a template is compiled), with errors of our kind."""
    token = use_budget(Budget(DEFAULT_LIMITS))
    try:
        yield
    except jinja2.TemplateSyntaxError as e:
        raise InvalidRequestError(
            f"The chat template is not valid at line {e.lineno}: {e.message}", param="chat_template"
        ) from e
    except (jinja2.TemplateError, RecursionError) as e:
        raise InvalidRequestError(f"The chat template is not valid: {e}", param="chat_template") from e
    finally:
        end_budget(token)
