"""Tools and `tool_choice` of a chat request, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.lib.errors import InvalidRequestError, NotSupportedError

MAX_TOOLS = 512
MAX_TOOL_NAME = 256

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ToolChoice:
    """What the model may and must call.

    Attributes:
        mode: `none`, `auto` or `required`.
        names: The tools among which it chooses.
        named: It calls the only one of them, and its answer is the arguments alone.
    """

    mode: str
    names: tuple[str, ...] = ()
    named: bool = False


def check_tools(tools: Tools) -> None:
    """Hold tools to their shape.

    Raises:
        InvalidRequestError, NotSupportedError: names the place and the limit.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidRequestError(f"tools takes at most {MAX_TOOLS}, got {len(tools)}", param="tools")
    names = [_checked_name(tool, f"tools[{at}]") for at, tool in enumerate(tools)]
    for at, name in enumerate(names):
        if name in names[:at]:
            where = f"tools[{at}].function.name"
            raise InvalidRequestError(f"{where} {name[:64]!r} is there twice", param=where)


def _checked_name(tool: Mapping[str, Any], where: str) -> str:
    kind = tool.get("type", "function")
    if kind != "function":
        message = f"{where} is of type {str(kind)[:64]!r}; this server calls nothing itself and takes function tools only"
        raise NotSupportedError(message, param=f"{where}.type")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidRequestError(f"{where}.function must be an object", param=f"{where}.function")
    name = function.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_TOOL_NAME:
        message = f"{where}.function.name must be a text of 1 to {MAX_TOOL_NAME} characters"
        raise InvalidRequestError(message, param=f"{where}.function.name")
    if not isinstance(function.get("parameters"), (Mapping, type(None))):
        message = f"{where}.function.parameters must be a JSON schema"
        raise InvalidRequestError(message, param=f"{where}.function.parameters")
    return name


def schemas_of(tools: Tools) -> dict[str, Any]:
    """The parameters' schemas by the names of the tools."""
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}


def chosen(choice: str | dict[str, Any] | None, tools: Tools) -> ToolChoice:
    """What `tool_choice` says about these tools.

    Raises:
        InvalidRequestError, NotSupportedError: it does not fit them.
    """
    names = tuple(tool["function"]["name"] for tool in tools)
    if isinstance(choice, dict):
        return _chosen_object(choice, names)
    if choice not in ("none", "auto", "required", None):
        raise _no_such_choice(choice)
    if choice == "required" and not names:
        raise InvalidRequestError("tool_choice required needs tools", param="tool_choice")
    return ToolChoice("none" if not names else choice or "auto", names)


def _chosen_object(choice: dict[str, Any], names: tuple[str, ...]) -> ToolChoice:
    match choice:
        case {"type": "function", "function": {"name": name}}:
            return ToolChoice("required", _known([name], names), named=True)
        case {"type": "allowed_tools", "allowed_tools": {"tools": list() as entries, **rest}}:
            mode = rest.get("mode", "auto")
            if mode not in ("auto", "required") or not entries:
                message = "tool_choice allowed_tools takes tools (not empty) and mode (auto or required)"
                raise InvalidRequestError(message, param="tool_choice")
            found = [e.get("function", {}).get("name") if isinstance(e, dict) else None for e in entries]
            return ToolChoice(mode, _known(found, names))
    raise _no_such_choice(choice.get("type"))


def _known(found: Sequence[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    for name in found:
        if name not in names:
            message = f"tool_choice names {str(name)[:64]!r}, which is not among the tools"
            raise InvalidRequestError(message, param="tool_choice")
    return tuple(found)


def _no_such_choice(kind: object) -> NotSupportedError:
    return NotSupportedError(
        f"tool_choice {str(kind)[:64]!r} is not supported; it takes none, auto, required, a function's name "
        "or allowed_tools",
        param="tool_choice",
    )
