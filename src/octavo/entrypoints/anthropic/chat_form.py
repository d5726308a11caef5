"""A Messages request as a chat request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from octavo.entrypoints.anthropic.protocol import CountTokensRequest, MessagesRequest, ToolChoice
from octavo.entrypoints.openai.handlers.turns import chat_body
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.fields import text_in
from octavo.lib.errors import InvalidRequestError, NotSupportedError

Message = dict[str, Any]

# From chat's names to this API's, for errors.
NAMES = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "structured_outputs": "output_config.format",
    "prompt": "messages",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: CountTokensRequest) -> ChatCompletionRequest:
    """What the engine is asked; a conversation that ends with the assistant's turn has that turn continued.

    Raises:
        InvalidRequestError, NotSupportedError: names the field.
    """
    messages = _messages(body)
    fields: dict[str, Any] = {"messages": messages, "model": body.model}
    if messages[-1]["role"] == "assistant":
        fields["continue_final_message"] = True
    if body.tools:
        fields["tools"] = [_chat_tool(tool, f"tools[{at}]") for at, tool in enumerate(body.tools)]
        fields |= _choice(body.tool_choice, body.tools)
    fields["chat_template_kwargs"] = _template_arguments(body)
    if body.output_config is not None and body.output_config.format is not None:
        schema = {"name": "answer", "schema": body.output_config.format.json_schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(body, MessagesRequest):
        fields |= _sampling(body)
    return chat_body(fields)


def _sampling(body: MessagesRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "max_completion_tokens": body.max_tokens,
        "stop": body.stop_sequences or None,
        "stream": body.stream,
        "priority": body.priority,
    }
    for name in ("temperature", "top_p", "top_k", "seed", "cache_salt"):
        if getattr(body, name) is not None:
            fields[name] = getattr(body, name)
    return fields


def _template_arguments(body: CountTokensRequest) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {}
    if body.thinking is not None:
        thinks = body.thinking.type != "disabled"
        arguments |= {"enable_thinking": thinks, "thinking": thinks}
    if body.output_config is not None and body.output_config.effort is not None:
        arguments["reasoning_effort"] = body.output_config.effort
    return arguments | (body.chat_template_kwargs or {}) or None


def _choice(choice: ToolChoice | None, tools: list[dict[str, Any]]) -> dict[str, Any]:
    if choice is None:
        return {}
    fields: dict[str, Any] = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {}
    if choice.type != "tool":
        return fields | {"tool_choice": _CHOICES[choice.type]}
    if choice.name is None or all(tool.get("name") != choice.name for tool in tools):
        message = f"tool_choice names {str(choice.name)[:64]!r}, which is not among the tools"
        raise InvalidRequestError(message, param="tool_choice")
    return fields | {"tool_choice": {"type": "function", "function": {"name": choice.name}}}


def _chat_tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type", "custom")
    if kind not in ("custom", None):
        message = f"{where} is of type {str(kind)[:64]!r}; this server runs no tools itself and takes custom ones only"
        raise NotSupportedError(message, param=f"{where}.type")
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(f"{where}.name must be a text", param=f"{where}.name")
    if not isinstance(schema, dict):
        raise InvalidRequestError(f"{where}.input_schema must be an object", param=f"{where}.input_schema")
    function = {"name": name, "parameters": schema}
    function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _messages(body: CountTokensRequest) -> list[Message]:
    messages: list[Message] = []
    if body.system:
        messages.append({"role": "system", "content": _text(body.system, "system")})
    for at, message in enumerate(body.messages):
        where = f"messages[{at}]"
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            raise InvalidRequestError(f"{where}.role must be user or assistant", param=f"{where}.role")
        blocks = _blocks(content, f"{where}.content")
        turn = _assistant(blocks, where) if role == "assistant" else _user(blocks, where)
        messages.extend(turn)
    return messages


def _user(blocks: list[dict[str, Any]], where: str) -> list[Message]:
    """Results of tools are messages of their own, before what the user says beside them."""
    results: list[Message] = []
    texts: list[str] = []
    for at, block in enumerate(blocks):
        place = f"{where}.content[{at}]"
        if block["type"] == "tool_result":
            call_id = text_in(block, "tool_use_id", place)
            content = block.get("content")
            text = "" if content is None else _text(content, f"{place}.content")
            results.append({"role": "tool", "tool_call_id": call_id, "content": text})
        else:
            texts.append(_block_text(block, place))
    said = [{"role": "user", "content": "\n".join(texts)}] if texts or not results else []
    return results + said


def _assistant(blocks: list[dict[str, Any]], where: str) -> list[Message]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        place = f"{where}.content[{at}]"
        match block["type"]:
            case "thinking":
                thoughts.append(text_in(block, "thinking", place))
            case "redacted_thinking":
                pass  # nobody but the service that wrote it can read it
            case "tool_use":
                calls.append(_call(block, place))
            case _:
                texts.append(_block_text(block, place))
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message |= {"tool_calls": calls, "content": message["content"] or None}
    return [message]


def _call(block: dict[str, Any], where: str) -> dict[str, Any]:
    arguments = block.get("input", {})
    if not isinstance(arguments, dict):
        raise InvalidRequestError(f"{where}.input must be an object", param=f"{where}.input")
    function = {
        "name": text_in(block, "name", where),
        "arguments": json.dumps(arguments, ensure_ascii=False),
    }
    return {"id": text_in(block, "id", where), "type": "function", "function": function}


def _blocks(content: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} must be a text or a list of blocks", param=where)
    for at, block in enumerate(content):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise InvalidRequestError(f"{where}[{at}] must be a block with a type", param=f"{where}[{at}]")
    return content


def _text(content: Any, where: str) -> str:
    blocks = _blocks(content, where)
    return "\n".join(_block_text(block, f"{where}[{at}]") for at, block in enumerate(blocks))


def _block_text(block: dict[str, Any], where: str) -> str:
    if block["type"] == "text":
        return text_in(block, "text", where)
    source = block.get("source")
    if block["type"] == "document" and isinstance(source, dict) and source.get("type") == "text":
        return text_in(source, "data", f"{where}.source")
    raise NotSupportedError(
        f"{where} is of type {block['type'][:64]!r}; this model takes text only", param=where
    )
