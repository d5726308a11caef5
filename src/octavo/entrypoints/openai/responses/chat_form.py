"""A Responses request as a chat request, and as the response object that its answer will fill."""

from __future__ import annotations

from typing import Any

from octavo.entrypoints.openai.handlers.turns import Turn, chat_body
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.fields import SamplingFields
from octavo.entrypoints.openai.protocol.responses import MAX_TOOLS, ResponsesRequest
from octavo.entrypoints.openai.responses.open_items import new_id
from octavo.lib.errors import InvalidRequestError, NotSupportedError

# From chat's names to ours, for errors.
NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "structured_outputs": "text.format",
    "logprobs": "top_logprobs",
    "prompt": "input",
}
_NOT_SAMPLING = frozenset({"stream", "stream_options", "n"})


def chat_request(body: ResponsesRequest, messages: list[dict[str, Any]]) -> ChatCompletionRequest:
    """What the engine is asked.

    Raises:
        InvalidRequestError, NotSupportedError: names the field.
    """
    given = (set(SamplingFields.model_fields) & body.model_fields_set) - _NOT_SAMPLING
    fields: dict[str, Any] = {name: getattr(body, name) for name in given}
    tools, choice = _tools_and_choice(body)
    fields |= {
        "messages": messages,
        "model": body.model,
        "max_completion_tokens": body.max_output_tokens,
        "stream": bool(body.stream or body.background or body.wants_logprobs),
        "tools": [_chat_tool(tool) for tool in tools] or None,
        "tool_choice": choice if tools else None,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    if body.parallel_tool_calls is not None and tools:
        fields["parallel_tool_calls"] = body.parallel_tool_calls
    if body.wants_logprobs:
        fields |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    if body.text is not None and body.text.format is not None:
        fields["response_format"] = body.text.format.response_format()
    return chat_body(fields)


def empty_response(body: ResponsesRequest, model: str, created: int, turn: Turn) -> dict[str, Any]:
    """The response object before its answer."""
    params, reasoning = turn.params, body.reasoning
    text = body.text.model_dump(by_alias=True, exclude_none=True) if body.text else {}
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": "queued" if body.background else "in_progress",
        "background": bool(body.background),
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        # No summary is ever made, so none is claimed.
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.is_stored,
        "temperature": params.temperature,
        "text": {"format": {"type": "text"}} | text,
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": body.truncation or "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def stored_items(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Input items as they are listed later: each with a type and an id."""
    return [{"type": "message", "id": new_id("item")} | item for item in items]


def _tools_and_choice(body: ResponsesRequest) -> tuple[list[dict[str, Any]], str | dict[str, Any] | None]:
    """The tools that may be called, and chat's way to say which."""
    tools, choice = body.tools or [], body.tool_choice
    if len(tools) > MAX_TOOLS:
        raise InvalidRequestError(f"tools takes at most {MAX_TOOLS}, got {len(tools)}", param="tools")
    for at, tool in enumerate(tools):
        _check_tool(tool, f"tools[{at}]")
    if choice in ("none", "auto", "required", None):
        if choice == "required" and not tools:
            raise InvalidRequestError("tool_choice required needs tools", param="tool_choice")
        return tools, choice
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if isinstance(choice, dict) and kind == "function":
        _check_known(choice.get("name"), tools)
        return tools, {"type": "function", "function": {"name": choice["name"]}}
    if isinstance(choice, dict) and kind == "allowed_tools":
        return _allowed(choice, tools)
    message = f"tool_choice {str(kind)[:64]!r} is not supported; it takes none, auto, required, or a function's name"
    raise NotSupportedError(message, param="tool_choice")


def _allowed(choice: dict[str, Any], tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    entries, mode = choice.get("tools"), choice.get("mode", "auto")
    if not isinstance(entries, list) or mode not in ("auto", "required"):
        message = "tool_choice allowed_tools takes tools (a list) and mode (auto or required)"
        raise InvalidRequestError(message, param="tool_choice")
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
    for name in names:
        _check_known(name, tools)
    return [tool for tool in tools if tool["name"] in names], mode


def _check_known(name: Any, tools: list[dict[str, Any]]) -> None:
    if not isinstance(name, str) or all(tool["name"] != name for tool in tools):
        message = f"tool_choice names {str(name)[:64]!r}, which is not among the tools"
        raise InvalidRequestError(message, param="tool_choice")


def _check_tool(tool: dict[str, Any], where: str) -> None:
    kind = tool.get("type")
    if kind != "function":
        message = f"{where} is of type {str(kind)[:64]!r}; this server calls nothing itself and takes function tools only"
        raise NotSupportedError(message, param=f"{where}.type")
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise InvalidRequestError(f"{where}.name must be a text", param=f"{where}.name")
    if not isinstance(tool.get("parameters", {}), (dict, type(None))):
        raise InvalidRequestError(f"{where}.parameters must be a JSON schema", param=f"{where}.parameters")


def _chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    kept = {k: tool[k] for k in ("name", "description", "parameters", "strict") if tool.get(k) is not None}
    return {"type": "function", "function": {"parameters": {"type": "object", "properties": {}}} | kept}
