"""`tool_choice` required or named: the answer is JSON of a shape that grammar enforces, whatever the model's own format.

A named tool's answer is its arguments alone; a required call's is a list of names with arguments, as vLLM has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.tools import ToolChoice, schemas_of
from octavo.entrypoints.parsers.calls import Calls, JsonCalls
from octavo.entrypoints.parsers.format import ToolFormat
from octavo.entrypoints.parsers.json_text import copy_value
from octavo.entrypoints.parsers.source import Reading
from octavo.lib.errors import InvalidRequestError
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import StructuredOutputsParams

REQUIRED = ToolFormat(bare=("[{", JsonCalls()))


@dataclass(frozen=True)
class ArgumentsOf:
    """A layout: the arguments of one call, whose name is known."""

    name: str

    def markers(self) -> tuple[str, ...]:
        """None."""
        return ()

    def read(self, calls: Calls) -> Reading[None]:
        """See `Layout`."""
        calls.start(self.name)
        yield from copy_value(calls.source, calls.arguments)
        calls.end()


def constrained(params: SamplingParams, body: ChatCompletionRequest) -> SamplingParams:
    """`params` with the constraint by which `body` forces calls, if it does.

    A `response_format` is the shape of an answer in words, and here there is none; clients send both.

    Raises:
        InvalidRequestError: `body` has `structured_outputs` beside the calls.
    """
    if body.choice.mode != "required":
        return params
    if body.structured_outputs is not None:
        message = "tool_choice forces calls, whose shape excludes structured_outputs"
        raise InvalidRequestError(message, param="tool_choice")
    schema = forced_schema(body.choice, schemas_of(body.tools or ()), body.max_calls)
    shape = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
    return msgspec.structs.replace(params, structured_outputs=shape)


def forced_format(choice: ToolChoice) -> ToolFormat:
    """How the calls that `choice` forces are written."""
    return ToolFormat(bare=("{", ArgumentsOf(choice.names[0]))) if choice.named else REQUIRED


def forced_schema(choice: ToolChoice, schemas: Mapping[str, Any], max_calls: int | None) -> dict[str, Any]:
    """The JSON schema of an answer that makes the calls that `choice` forces.

    Args:
        schemas: Parameters' schemas by tool name.
        max_calls: Calls that there may be; None: any number.
    """
    if choice.named:
        return _arguments(schemas[choice.names[0]], "#")
    place = "#/items/anyOf/{}/properties/arguments"
    options = [
        {
            "type": "object",
            "properties": {
                "name": {"enum": [name]},
                "arguments": _arguments(schemas[name], place.format(at)),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for at, name in enumerate(choice.names)
    ]
    limit = {} if max_calls is None else {"maxItems": max_calls}
    return {"type": "array", "minItems": 1, **limit, "items": {"anyOf": options}}


def _arguments(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A tool's schema at another place: references from its root follow it. Arguments are always an object."""
    moved: dict[str, Any] = _moved(schema, place)
    return {"type": "object"} | moved


def _moved(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: place + item[1:]
            if key == "$ref" and isinstance(item, str) and item.startswith("#")
            else _moved(item, place)
            for key, item in value.items()
        }
    return [_moved(item, place) for item in value] if isinstance(value, list) else value
