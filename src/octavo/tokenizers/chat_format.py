"""How a chat template wants messages: content as one text or as a list of parts, arguments as objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from jinja2 import nodes

from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers.chat import parse_template

ContentFormat = Literal["string", "parts", "parts_only"]
Message = dict[str, Any]
_TEXT_TESTS = frozenset({"string", "iterable", "sequence", "mapping"})


@lru_cache(maxsize=256)
def content_format(template: str) -> ContentFormat:
    """What a template takes as content.

    "parts" if it loops over the content of a message, "parts_only" if it does so without asking whether the content
    is a text, else "string".

    Raises:
        InvalidRequestError: The template is not valid.
    """
    tree = parse_template(template)
    names = {"content"}
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _is_content(assignment.node, names):
            names.add(assignment.target.name)
    if not any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For)):
        return "string"
    asked = any(
        test.name in _TEXT_TESTS and _is_content(test.node, names) for test in tree.find_all(nodes.Test)
    )
    return "parts" if asked else "parts_only"


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """Whether an expression is the content of a message, perhaps filtered or sliced."""
    if isinstance(node, nodes.Filter) and node.node is not None:
        return node.name in ("list", "selectattr", "rejectattr", "select", "reject") and _is_content(
            node.node, names
        )
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content(node.node, names)
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.Call):
        gets = isinstance(node.node, nodes.Getattr) and node.node.attr == "get"
        return (
            gets
            and bool(node.args)
            and isinstance(node.args[0], nodes.Const)
            and node.args[0].value == "content"
        )
    return isinstance(node, nodes.Name) and node.name in names


def prepare_messages(messages: Sequence[Mapping[str, Any]], template: str) -> list[Message]:
    """Messages of the OpenAI API in the form that a template takes.

    Content comes as a text or as parts (`{"type": "text", "text": ...}`); the arguments of earlier tool calls as
    JSON texts, which templates expect as objects.

    Raises:
        InvalidRequestError: A part is not text, or arguments are not JSON; names the message.
    """
    wanted = content_format(template)
    return [_prepared(message, wanted, f"messages[{at}]") for at, message in enumerate(messages)]


def _prepared(message: Mapping[str, Any], wanted: ContentFormat, where: str) -> Message:
    _check_shape(message, where)
    prepared = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        parts = list(_text_parts(content, f"{where}.content"))
        joined = "\n".join(part["text"] for part in parts)
        prepared["content"] = joined if wanted == "string" else parts
    elif isinstance(content, str) and wanted == "parts_only":
        prepared["content"] = [{"type": "text", "text": content}]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        prepared["tool_calls"] = [_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls)]
    return prepared


def _check_shape(message: object, where: str) -> None:
    """What templates take for granted: a role, and content from all but the assistant, whose turn may be calls alone."""
    if not isinstance(message, Mapping):
        raise InvalidRequestError(
            f"{where} must be an object with role and content, but is of type {type(message).__name__}.",
            param=where,
        )
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise InvalidRequestError(f"{where}.role must be a text.", param=f"{where}.role")
    if not isinstance(content, (str, list)) and not (content is None and role == "assistant"):
        raise InvalidRequestError(
            f"{where}.content must be a text or a list of parts, but is {'missing' if content is None else type(content).__name__}.",
            param=f"{where}.content",
        )


def _text_parts(content: Sequence[Any], where: str) -> Iterator[Message]:
    for at, part in enumerate(content):
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise InvalidRequestError(
                f"{where}[{at}] is of type {kind!r}; this model takes text only.", param=f"{where}[{at}]"
            )
        yield {"type": "text", "text": text}


def _call(call: Any, where: str) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as e:
        where += ".function.arguments"
        raise InvalidRequestError(f"{where} is not JSON: {e}", param=where) from e
    return {**call, "function": {**function, "arguments": arguments}}
