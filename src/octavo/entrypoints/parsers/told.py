"""Tools for models whose chat template knows nothing of them: told in words, with calls as Hermes writes them.

The tags are those of NousResearch's Hermes 2 Pro, which more models have learned than any others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Message = dict[str, Any]

_WORDS = """You can call functions. Each line here describes one, in JSON:
{tools}
To call a function, answer with its name and its arguments like this, and nothing after it:
<tool_call>
{{"name": "NAME", "arguments": {{"ARGUMENT": "VALUE"}}}}
</tool_call>
What it returns will be given to you."""


def with_tools(messages: Sequence[Message], tools: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The conversation with a system message that describes the tools, after what it says already."""
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    words = _WORDS.format(tools=lines)
    if not messages or messages[0].get("role") != "system":
        return [{"role": "system", "content": words}, *messages]
    first = messages[0]
    before = first.get("content")
    if isinstance(before, list):
        return [first | {"content": [*before, {"type": "text", "text": words}]}, *messages[1:]]
    return [first | {"content": f"{before}\n\n{words}"}, *messages[1:]]


def with_calls_spelled(messages: Iterable[Message]) -> list[Message]:
    """Calls as the assistant's words, and what they returned as the user's."""
    return [_spelled(message) for message in messages]


def _spelled(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") == "tool" and isinstance(content, str):
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls or not isinstance(content, (str, type(None))):
        return message
    said = [content] if content else []
    spelled = "\n".join(said + [_call(call) for call in calls])
    return {key: value for key, value in message.items() if key != "tool_calls"} | {"content": spelled}


def _call(call: Any) -> str:
    """One call; arguments may come as an object or as its text."""
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    name = json.dumps(function.get("name"), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {text}}}\n</tool_call>'
