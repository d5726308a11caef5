"""Input and output items as the messages of a chat.

An assistant's turn may be several items (reasoning, a message, calls); templates want it as one message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from octavo.entrypoints.openai.protocol.fields import text_in
from octavo.lib.errors import InvalidRequestError, NotSupportedError

Item = dict[str, Any]
Message = dict[str, Any]

_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
SEPARATOR = "\n\n"


def messages_of(
    items: Iterable[Item], instructions: str | None = None, history: Iterable[Item] = ()
) -> list[Message]:
    """The conversation that `history` and `items` tell, oldest first.

    System messages at its head, `instructions` first, become one, since few templates take several.

    Raises:
        InvalidRequestError: An item is malformed; names its place.
        NotSupportedError: An item is of a kind that this server does not have.
    """
    fold = _Fold()
    if instructions:
        fold.messages.append({"role": "system", "content": instructions})
    for item in history:
        fold.add(item, "previous_response_id")
    for at, item in enumerate(items):
        fold.add(item, f"input[{at}]")
    return fold.finished()


class _Fold:
    """Gathers items into messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._names: dict[str, str] = {}
        self._turn: Message | None = None

    def add(self, item: Item, where: str) -> None:
        kind = item.get("type") or "message"
        match kind:
            case "message":
                self._message(item, where)
            case "reasoning":
                self._reasoning(item, where)
            case "function_call":
                self._call(item, where)
            case "function_call_output":
                self._call_output(item, where)
            case _:
                _refuse_kind(kind, f"{where}.type")

    def finished(self) -> list[Message]:
        self._end_turn()
        if not self.messages:
            raise InvalidRequestError("input holds no message", param="input")
        return self.messages

    def _message(self, item: Item, where: str) -> None:
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            message = f"{where}.role must be one of {', '.join(_ROLES)}"
            raise InvalidRequestError(message, param=f"{where}.role")
        text = text_of(item.get("content"), f"{where}.content")
        if role == "assistant":
            if self._turn is not None and ("content" in self._turn or "tool_calls" in self._turn):
                self._end_turn()
            self._open_turn()["content"] = text
            return
        self._end_turn()
        last = self.messages[-1] if self.messages else None
        if role == "system" and last is not None and len(self.messages) == 1 and last["role"] == "system":
            last["content"] += SEPARATOR + text
        else:
            self.messages.append({"role": role, "content": text})

    def _reasoning(self, item: Item, where: str) -> None:
        content = item.get("content")
        text = text_of(content, f"{where}.content") if content else ""
        self._end_turn()
        if text:
            self._open_turn()["reasoning_content"] = text

    def _call(self, item: Item, where: str) -> None:
        call_id, name, arguments = (text_in(item, key, where) for key in ("call_id", "name", "arguments"))
        _check_arguments(arguments, f"{where}.arguments")
        self._names[call_id] = name
        function = {"name": name, "arguments": arguments}
        calls = self._open_turn().setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})

    def _call_output(self, item: Item, where: str) -> None:
        call_id = text_in(item, "call_id", where)
        if call_id not in self._names:
            message = f"{where}.call_id {call_id[:64]!r} answers no function_call before it"
            raise InvalidRequestError(message, param=f"{where}.call_id")
        self._end_turn()
        content = text_of(item.get("output"), f"{where}.output")
        name = self._names[call_id]
        self.messages.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": content})

    def _open_turn(self) -> Message:
        if self._turn is None:
            self._turn = {"role": "assistant"}
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            if "tool_calls" not in self._turn:
                self._turn.setdefault("content", "")
            self.messages.append(self._turn)
            self._turn = None


def text_of(content: Any, where: str) -> str:
    """The text of a message, of a tool's output or of reasoning: as it is, or from parts.

    Raises:
        InvalidRequestError, NotSupportedError: it is neither, or a part is no text; names the place.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} must be a text or a list of parts", param=where)
    return "\n".join(_part_text(part, f"{where}[{at}]") for at, part in enumerate(content))


def _part_text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if kind in _TEXT_PARTS else part.get("refusal") if kind == "refusal" else None
    if isinstance(text, str):
        return text
    if kind in _TEXT_PARTS or not isinstance(kind, str):
        raise InvalidRequestError(f"{where} must be a part with a type and a text", param=where)
    raise NotSupportedError(f"{where} is of type {kind[:64]!r}; this model takes text only", param=where)


def _check_arguments(text: str, where: str) -> None:
    try:
        known = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        known = False
    if not known:
        raise InvalidRequestError(f"{where} must be a JSON object as a text", param=where)


def _refuse_kind(kind: Any, where: str) -> NoReturn:
    if kind == "item_reference":
        message = f"{where}: item_reference is not supported; send the item, or use previous_response_id"
        raise NotSupportedError(message, param=where)
    shown = repr(kind)[:64]
    raise NotSupportedError(
        f"{where} {shown} is not supported; items are message, reasoning, function_call and function_call_output",
        param=where,
    )
